#include "model/model.h"

#include <ATen/ATen.h>

namespace sdp {

at::Tensor Model::forward(const at::Tensor& input, const ForwardMode& mode) {
  const at::Tensor x = features(input, mode);
  const auto [weight, bias] = head();
  return at::linear(x, weight, bias);
}

std::unique_ptr<Model> make_model(const ModelSpec& spec) {
  const DropRates drop{spec.dropout, spec.stochastic_depth, spec.stochastic_depth_rule};
  return spec.kind.visit([&](const auto& model) { return make_model(model, drop); });
}

std::unique_ptr<Model> make_subnetwork(const ModelSpec& spec, const SubnetPlan& plan, int worker,
                                       const TensorSource& source) {
  std::unique_ptr<Model> model = make_model(spec);
  model->bind_shared(source);
  for (int branch = 0; branch < static_cast<int>(plan.layout.branches.size()); ++branch)
    if (plan.has_branch(worker, branch)) model->bind_branch(branch, source);
  return model;
}

}  // namespace sdp
