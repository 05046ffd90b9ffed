#pragma once

#include <torch/torch.h>

#include "data/device_loader.h"
#include "experiment/experiment_spec.h"
#include "layers/tensors.h"
#include "subnet/slot_map.h"
#include "test_device.h"

namespace sdp {

/// A batch that depends only on the step, the slot and the micro-batch.
inline TensorBatch batch_of(const ExperimentSpec& spec, int64_t step, const Slot& slot, int64_t micro_batch) {
  at::Generator noise = at::detail::createCPUGenerator(
      static_cast<uint64_t>(10000 * step + 100 * slot.worker + 10 * slot.replica + micro_batch));
  const at::ScalarType type = scalar_type(compute_type(spec.train.precision));
  return {.input = at::randn({2, 3, 8, 8}, noise).to(test_device(), type),
          .labels = at::randint(10, {2}, noise, at::kLong).to(test_device())};
}

}  // namespace sdp
