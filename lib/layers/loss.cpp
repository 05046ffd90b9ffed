#include "layers/loss.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/availability.h"
#include "ops/ops.h"

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

/// Room for the logits of a chunk, [R, V]. Rows begin at multiples of 64 bytes: with a vocabulary of 50,257
/// and rows without gaps, a CPU's products take up to twice as long, and a GPU's cannot use vector loads.
at::Tensor make_room(int64_t rows, int64_t vocabulary, const at::TensorOptions& options) {
  constexpr int64_t kAlignment = 32;  // elements: 64 bytes of bf16
  const int64_t stride = (vocabulary + kAlignment - 1) / kAlignment * kAlignment;
  return at::empty({rows, stride}, options).narrow(1, 0, vocabulary);
}

/// Adds a chunk to the sums.
void add_chunk(Sums& sums, const at::Tensor& room, const at::Tensor& x, const at::Tensor& weight,
               const at::Tensor& labels, int64_t row, const Settings& settings) {
  const int64_t rows = std::min(settings.rows_at_a_time, x.size(0) - row);
  const at::Tensor x_rows = x.narrow(0, row, rows);
  at::Tensor logits = room.narrow(0, 0, rows);  // then their gradient
  at::mm_out(logits, x_rows, weight.t());
  const at::Tensor losses =
      ops::cross_entropy_(logits, labels.narrow(0, row, rows), settings.smoothing, settings.with_gradients);
  sums.loss.add_(losses.sum());
  if (!settings.with_gradients) return;
  const double mean = 1 / static_cast<double>(x.size(0));  // of the rows
  at::Tensor x_gradient = sums.x_gradient.narrow(0, row, rows);
  at::addmm_out(x_gradient, x_gradient, logits, weight, /*beta=*/0, /*alpha=*/mean);
  if (x.scalar_type() == sums.weight_gradient.scalar_type())
    sums.weight_gradient.addmm_(logits.t(), x_rows, /*beta=*/1, /*alpha=*/mean);
  else
    sums.weight_gradient.add_(logits.t().mm(x_rows), /*alpha=*/mean);
}

class LinearCrossEntropy : public torch::autograd::Function<LinearCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& labels, double smoothing, int64_t rows_at_a_time) {
    const at::ScalarType type = at::toOpMathType(x.scalar_type());
    const Settings settings{.smoothing = smoothing,
                            .rows_at_a_time = rows_at_a_time,
                            .with_gradients = x.requires_grad() || weight.requires_grad()};
    Sums sums{.loss = at::zeros({}, x.options().dtype(type)), .x_gradient = {}, .weight_gradient = {}};
    if (settings.with_gradients) {
      sums.x_gradient = at::empty_like(x);
      sums.weight_gradient = at::zeros_like(weight, weight.options().dtype(type));
    }
    const at::Tensor room = make_room(std::min(rows_at_a_time, x.size(0)), weight.size(0), x.options());
    for (int64_t row = 0; row < x.size(0); row += rows_at_a_time)
      add_chunk(sums, room, x, weight, labels, row, settings);
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

TrainingLoss training_loss(const at::Tensor& features, const Head& head, const Targets& targets,
                           double label_smoothing) {
  const bool is_language_model = features.dim() == 3;
  if (is_language_model)
    return {linear_cross_entropy(
        features.flatten(0, 1), head.weight, targets.labels.flatten(), label_smoothing,
        logit_rows_at_a_time(head.weight.size(0), features.is_cuda() && ops::has_device_kernels()))};
  const at::ScalarType type = at::toOpMathType(features.scalar_type());
  at::Tensor logits = head.logits(features);
  if (logits.scalar_type() != type) logits = logits.to(type);
  const auto loss_of = [&](const at::Tensor& labels) {
    return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean,
                                  /*ignore_index=*/-100, label_smoothing);
  };
  const at::Tensor loss = loss_of(targets.labels);
  if (!targets.mixed_labels.defined()) return {loss, logits.detach().argmax(1).eq(targets.labels).sum()};
  return {targets.mix * loss + (1 - targets.mix) * loss_of(targets.mixed_labels)};
}

at::Tensor prediction_sums(const at::Tensor& features, const Head& head, const at::Tensor& labels,
                           const at::Tensor& weights, bool counts_top5) {
  const at::Tensor flat_features = features.flatten(0, -2);  // [N, W]
  const at::Tensor flat_labels = labels.flatten();
  const at::Tensor sums = at::zeros({weights.size(0), 5}, weights.options());
  const int64_t rows_at_a_time = logit_rows_at_a_time(head.outputs(features), /*device_kernels=*/false);
  for (int64_t row = 0; row < flat_labels.numel(); row += rows_at_a_time) {
    const int64_t rows = std::min(rows_at_a_time, flat_labels.numel() - row);
    const at::Tensor predicted = head.logits(flat_features.narrow(0, row, rows))
                                     .to(at::toOpMathType(features.scalar_type()));  // [R, K]
    const at::Tensor wanted = flat_labels.narrow(0, row, rows);
    const at::Tensor losses = at::cross_entropy_loss(predicted, wanted, /*weight=*/{}, at::Reduction::None);
    const at::Tensor hits = predicted.argmax(1).eq(wanted);
    const auto of_five = [&] {
      const at::Tensor largest = std::get<1>(predicted.topk(5, 1));
      return largest.eq(wanted.unsqueeze(1)).any(1);
    };
    const at::Tensor values =
        at::stack({losses.to(at::kDouble), hits.to(at::kDouble),
                   counts_top5 ? of_five().to(at::kDouble) : at::zeros_like(losses, at::kDouble),
                   at::ones({rows}, sums.options()), losses.to(at::kDouble).square()},
                  1);  // [R, 5]
    sums.add_(at::matmul(weights.narrow(1, row, rows), values));
  }
  return sums;
}

}  // namespace sdp
