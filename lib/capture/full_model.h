#pragma once

// What limits of a spec need to know of a step of the full model.

#include <cstdint>
#include <optional>

#include "capture/step_captures.h"
#include "subnet/layout.h"

namespace sdp {

/// Bytes that a sample keeps for the backward pass; infinity if a tensor's size does not fit into 64 bits.
double kept_bytes_per_sample(const ModelLayout& layout, const StepShape& step);

/// The fewest values per channel and sample that a BatchNorm sees; none without BatchNorm.
std::optional<int64_t> fewest_norm_positions(const ModelLayout& layout, const StepShape& step);

}  // namespace sdp
