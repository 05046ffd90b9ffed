#pragma once

#include <cstdint>

#include "model/model_spec.h"
#include "subnet/layout.h"
#include "subnet/plan.h"

namespace sdp {

/// Layout of the model that the resolved spec names, with its FLOPs. For a language model, those of a sample
/// of `sequence_length` tokens.
ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length = 1);

/// Sets the FLOPs of a layout that has none (model/model_spec.h). They are counted in steps of few workers,
/// with and without each branch and each half of its hidden width.
void add_flops(ModelLayout& layout, const ModelSpec& spec, int64_t sequence_length);

/// The dense network as wide as the worker's subnetwork; none unless that has only owned slices, of every
/// branch.
std::optional<ModelLayout> narrow_layout(const SubnetPlan& plan, int worker);

}  // namespace sdp
