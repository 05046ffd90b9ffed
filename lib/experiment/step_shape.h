#pragma once

#include "capture/step_captures.h"
#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// The step that the spec describes, for its captures.
StepShape step_shape(const ExperimentSpec& spec);

}  // namespace sdp
