#pragma once

#include "spec/field.h"

namespace sdp {

/// When gradients are reduced: once per step, as the sum over its micro-batches, or after each micro-batch.
enum class ReduceEvery { kStep, kMicroBatch };

SDP_ENUM_NAMES(ReduceEvery, {ReduceEvery::kStep, "step"}, {ReduceEvery::kMicroBatch, "micro_batch"})

}  // namespace sdp
