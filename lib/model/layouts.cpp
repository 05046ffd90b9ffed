#include "model/layouts.h"

namespace sdp {

ModelLayout structure_of(const ModelSpec& spec, int64_t sequence_length) {
  ModelLayout layout = spec.kind.visit([&](const auto& model) { return layout_of(model, sequence_length); });
  layout.name = spec.name();
  return layout;
}

}  // namespace sdp
