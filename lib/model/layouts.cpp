#include "model/layouts.h"

namespace sdp {

ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length) {
  ModelLayout layout = spec.kind.visit([&](const auto& model) { return layout_of(model, sequence_length); });
  layout.name = spec.name();
  if (spec.dropout > 0)
    for (BranchLayout& branch : layout.branches)
      branch.dropout_mask.elements = static_cast<double>(branch.stream.output);
  return layout;
}

}  // namespace sdp
