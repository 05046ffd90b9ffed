#pragma once

// What records of a model's steps say of the model: its layout with its FLOPs, and what limits of a spec need
// to know.

#include <cstdint>
#include <optional>

#include "capture/step_captures.h"
#include "model/model_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Layout of the model that the resolved spec names, with its FLOPs. For a language model, those of a sample
/// of `sequence_length` tokens.
ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length = 1);

/// Sets the FLOPs of a layout that has none (model/model_spec.h). They are counted in steps of few workers,
/// with and without each branch and each half of its hidden width.
void add_flops(ModelLayout& layout, const ModelSpec& spec, int64_t sequence_length);

/// Bytes that a sample keeps for the backward pass; infinity if a tensor's size does not fit into 64 bits.
double kept_bytes_per_sample(const ModelLayout& layout, const StepShape& step);

/// The fewest values per channel and sample that a BatchNorm sees; none without BatchNorm.
std::optional<int64_t> fewest_norm_positions(const ModelLayout& layout, const StepShape& step);

}  // namespace sdp
