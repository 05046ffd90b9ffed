#pragma once

// What a model's own sizes are where the spec leaves them unset, which keys a model has a use for, and
// whether the sizes go together.

#include <string_view>

#include "spec/experiment_spec.h"
#include "spec/position.h"

namespace sdp {

constexpr bool is_resnet(ModelName name) {
  return name == ModelName::kResNet18 || name == ModelName::kWideResNet18;
}
constexpr bool is_llama(ModelName name) {
  return name == ModelName::kLlamaTiny || name == ModelName::kLlama134m || name == ModelName::kLlama500m ||
         name == ModelName::kLlama1b;
}
constexpr bool has_batch_norm(ModelName name) {
  return is_resnet(name);
}

/// Fills the sizes that are unset. The LLaMAs have the shape of Touvron et al. 2023 at the paper's sizes.
void resolve_model(ModelSpec& spec);

/// Whether the model has a use for the key ("width", "heads", ..) of the section `model`.
bool model_uses(ModelName name, std::string_view key);

/// Throws UsageError for a resolved spec whose sizes do not go together: heads against width and key/value
/// heads, patches against the image.
void check_model(const ModelSpec& spec, const Positions& positions);

}  // namespace sdp
