#pragma once

#include "spec/field.h"

namespace sdp {

/// When the gradients of a step's micro-batches are reduced: their sum once, or each.
enum class ReduceEvery { kStep, kMicroBatch };

SDP_ENUM_NAMES(ReduceEvery, {ReduceEvery::kStep, "step"}, {ReduceEvery::kMicroBatch, "micro_batch"})

}  // namespace sdp
