#include "model/model.h"

#include "model/mlp.h"
#include "model/resnet.h"

namespace sdp {

std::unique_ptr<Model> make_model(const ModelSpec& spec) {
  if (spec.name == ModelName::kMlp) return std::make_unique<Mlp>(spec);
  return std::make_unique<ResNet18>(spec);
}

std::unique_ptr<Model> make_subnetwork(const ModelSpec& spec, const SubnetPlan& plan, int worker,
                                       const TensorSource& source) {
  std::unique_ptr<Model> model = make_model(spec);
  model->bind_shared(source);
  for (int unit : plan.units_with(worker, Holding::kOwned))
    model->bind_branch(plan.units[unit].branch, source);
  return model;
}

}  // namespace sdp
