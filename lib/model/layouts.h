#pragma once

#include "model/model_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Layout of the model that the resolved spec names. Torch-free. What a language model keeps and computes a
/// sample is for `sequence_length` tokens.
ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length = 1);

}  // namespace sdp
