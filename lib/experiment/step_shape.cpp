#include "experiment/step_shape.h"

namespace sdp {

StepShape step_shape(const ExperimentSpec& spec) {
  return {.model = spec.model,
          .sequence_length = spec.data.sequence_length(),
          .precision = spec.train.precision,
          .checkpoint_activations = spec.train.checkpoint_activations};
}

}  // namespace sdp
