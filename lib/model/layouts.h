#pragma once

#include "model/model_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Layout of the model that the resolved spec names, without FLOPs (capture/layouts.h). Does not need
/// LibTorch.
ModelLayout structure_of(const ModelSpec& spec, int64_t sequence_length = 1);

}  // namespace sdp
