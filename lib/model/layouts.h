#pragma once

#include "model/model_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Layout of the model that the resolved spec names. Does not need LibTorch. For a language model, the
/// activations and FLOPs per sample are those of `sequence_length` tokens.
ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length = 1);

}  // namespace sdp
