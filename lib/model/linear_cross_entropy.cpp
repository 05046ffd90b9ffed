#include "model/linear_cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace sdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Sums over the chunks of rows.
struct Sums {
  at::Tensor loss;             ///< scalar
  at::Tensor x_gradient;       ///< [N, W]
  at::Tensor weight_gradient;  ///< [V, W], of the loss's type
};

struct Settings {
  double smoothing = 0;
  int64_t rows_at_a_time = 1;
  bool with_gradients = true;
};

/// Adds a chunk to the sums. With z the logits, y the label and s the smoothing, the loss of a row is
/// log sum exp z - (1 - s) z_y - s mean z, and its gradient is softmax z - (1 - s) onehot y - s / V.
void add_chunk(Sums& sums, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
               int64_t row, const Settings& settings) {
  const int64_t rows = std::min(settings.rows_at_a_time, x.size(0) - row);
  const at::Tensor x_rows = x.narrow(0, row, rows);
  const at::Tensor label = labels.narrow(0, row, rows).unsqueeze(1);  // [R, 1]
  const double s = settings.smoothing;
  at::Tensor logits = at::linear(x_rows, weight).to(sums.loss.scalar_type());  // [R, V]
  const at::Tensor log_sum = logits.logsumexp(1, /*keepdim=*/true);
  at::Tensor losses = log_sum - logits.gather(1, label) * (1 - s);
  if (s > 0) losses.sub_(logits.mean(1, /*keepdim=*/true), s);
  sums.loss.add_(losses.sum());
  if (!settings.with_gradients) return;

  at::Tensor gradient = logits.sub_(log_sum).exp_();  // overwrites the logits
  gradient.scatter_add_(1, label, at::full_like(log_sum, s - 1));
  if (s > 0) gradient.sub_(s / static_cast<double>(weight.size(0)));
  gradient = gradient.div_(static_cast<double>(x.size(0))).to(x.scalar_type());
  sums.x_gradient.narrow(0, row, rows).copy_(gradient.mm(weight));
  if (x.scalar_type() == sums.weight_gradient.scalar_type())
    sums.weight_gradient.addmm_(gradient.t(), x_rows);
  else
    sums.weight_gradient.add_(gradient.t().mm(x_rows));
}

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& labels, double smoothing, int64_t rows_at_a_time) {
    const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const Settings settings{.smoothing = smoothing,
                            .rows_at_a_time = rows_at_a_time,
                            .with_gradients = x.requires_grad() || weight.requires_grad()};
    Sums sums{.loss = at::zeros({}, x.options().dtype(type)), .x_gradient = {}, .weight_gradient = {}};
    if (settings.with_gradients) {
      sums.x_gradient = at::empty_like(x);
      sums.weight_gradient = at::zeros_like(weight, weight.options().dtype(type));
    }
    for (int64_t row = 0; row < x.size(0); row += rows_at_a_time)
      add_chunk(sums, x, weight, labels, row, settings);
    context->saved_data["x_gradient"] = sums.x_gradient;
    context->saved_data["weight_gradient"] = sums.weight_gradient;
    context->saved_data["weight_type"] = weight.scalar_type();
    return sums.loss.div_(static_cast<double>(x.size(0)));
  }

  /// Called once: the saved gradients are handed over, not copied.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& saved = context->saved_data;
    const auto take = [&](const char* name) {
      const at::Tensor tensor = saved.at(name).toTensor();
      saved.erase(name);
      return tensor.mul_(gradients[0]);
    };
    const at::Tensor x_gradient = take("x_gradient");
    const at::Tensor weight_gradient = take("weight_gradient").to(saved.at("weight_type").toScalarType());
    return {x_gradient, weight_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                                double label_smoothing, int64_t rows_at_a_time) {
  return LinearCrossEntropy::apply(x, weight, labels, label_smoothing, rows_at_a_time);
}

}  // namespace sdp
