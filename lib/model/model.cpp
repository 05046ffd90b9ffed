#include "model/model.h"

#include <ATen/ATen.h>

#include "model/llama/llama.h"
#include "model/mlp/mlp.h"
#include "model/resnet/resnet.h"
#include "model/swin/swin.h"
#include "spec/model_defaults.h"

namespace sdp {

at::Tensor Model::forward(const at::Tensor& input, const ForwardMode& mode) {
  const at::Tensor x = features(input, mode);
  const auto [weight, bias] = head();
  return at::linear(x, weight, bias);
}

std::unique_ptr<Model> make_model(const ModelSpec& spec) {
  if (spec.name == ModelName::kMlp) return std::make_unique<Mlp>(spec);
  if (spec.name == ModelName::kSwinT) return std::make_unique<SwinT>(spec);
  if (is_llama(spec.name)) return std::make_unique<Llama>(spec);
  return std::make_unique<ResNet18>(spec);
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
