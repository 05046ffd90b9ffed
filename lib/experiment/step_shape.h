#pragma once

#include "capture/step_captures.h"
#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// The step that the spec describes, for its captures, on a CPU or a GPU.
StepShape step_shape(const ExperimentSpec& spec, bool on_gpu);

}  // namespace sdp
