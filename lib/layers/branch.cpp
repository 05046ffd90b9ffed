#include "layers/branch.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

namespace sdp {
namespace {

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Recipe& f) {
    context->save_for_backward({x});
    context->saved_data["f"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(f));
    return f(x, /*again=*/false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables().front().detach().requires_grad_();
    const auto holder = context->saved_data["f"].toCapsule();
    const Recipe& f = static_cast<Holder*>(holder.get())->f;
    // The gradient does not depend on the result's values, so only its gradient edge is kept.
    torch::autograd::edge_list result(1);
    {
      const at::AutoGradMode with_grad(true);
      RECORD_USER_SCOPE(kRecomputation);
      result.front() = torch::autograd::impl::gradient_edge(f(x, /*again=*/true));
    }
    torch::autograd::Engine::get_default_engine().execute(result, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
    return {x.grad(), at::Tensor()};
  }

 private:
  struct Holder : torch::CustomClassHolder {
    explicit Holder(Recipe recipe) : f(std::move(recipe)) {}
    Recipe f;
  };
};

/// A mask over the first `dims` dimensions of x: 0 with probability p, otherwise 1 / (1 - p).
at::Tensor keep_mask(const at::Tensor& x, int64_t dims, double p, at::Generator generator) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  for (int64_t d = 0; d < dims; ++d)
    shape[static_cast<size_t>(d)] = x.size(d);
  return at::empty(shape, x.options()).bernoulli_(1 - p, std::move(generator)).div_(1 - p);
}

/// Probability of dropping a sample at branch `branch` of `branches`.
double drop_probability(const DropRates& rates, int branch, int branches) {
  if (rates.stochastic_depth_rule == StochasticDepthRule::kUniform || branches == 1)
    return rates.stochastic_depth;
  return rates.stochastic_depth * branch / (branches - 1);
}

}  // namespace

at::Tensor drop_randomly(const at::Tensor& branch_output, const DropRates& rates, int branch, int branches,
                         const ForwardMode& mode) {
  if (!mode.training || !mode.generator) return branch_output;
  at::Tensor out = branch_output;
  if (rates.dropout > 0) out = out * keep_mask(out, out.dim(), rates.dropout, *mode.generator);
  const double p = drop_probability(rates, branch, branches);
  if (p > 0) out = out * keep_mask(out, 1, p, *mode.generator);
  return out;
}

at::Tensor add_branch(int branch, const at::Tensor& x, const ForwardMode& mode,
                      const std::function<at::Tensor()>& output) {
  if (mode.before_branch) mode.before_branch(branch);
  const at::Tensor out = output();
  if (mode.after_branch) mode.after_branch(branch);
  return out.defined() ? at::add(x, out, branch_scale(mode, branch)) : x;
}

at::Tensor recomputed(const Recipe& f, const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad() ? Recomputed::apply(x, f) : f(x, /*again=*/false);
}

at::Tensor run_branch(const Recipe& branch, const at::Tensor& x, const ForwardMode& mode) {
  return mode.checkpoint_branches ? recomputed(branch, x) : branch(x, /*again=*/false);
}

}  // namespace sdp
