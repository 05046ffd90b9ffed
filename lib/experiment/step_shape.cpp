#include "experiment/step_shape.h"

#include "ops/availability.h"

namespace sdp {

StepShape step_shape(const ExperimentSpec& spec, bool on_gpu) {
  return {.model = spec.model,
          .sequence_length = spec.data.sequence_length(),
          .precision = spec.train.precision,
          .checkpoint_activations = spec.train.checkpoint_activations,
          .device_kernels = on_gpu && ops::has_device_kernels()};
}

}  // namespace sdp
