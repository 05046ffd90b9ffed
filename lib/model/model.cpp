#include "model/model.h"

#include "model/mlp.h"
#include "model/resnet.h"

namespace sdp {

std::unique_ptr<Model> make_model(const ModelSpec& spec) {
  if (spec.name == ModelName::kMlp) return std::make_unique<Mlp>(spec);
  return std::make_unique<ResNet18>(spec);
}

}  // namespace sdp
