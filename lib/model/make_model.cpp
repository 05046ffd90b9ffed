#include "model/make_model.h"

namespace sdp {

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

std::unique_ptr<Model> make_model(const OwnSpec& spec, const DropRates& drop) {
  return spec.network_or_throw().make(spec, drop);
}

}  // namespace sdp
