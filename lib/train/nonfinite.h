#pragma once

// Steps whose loss or gradient is not finite (train.on_nonfinite).

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "engine/parameter_store.h"

namespace sdp {

/// What was not finite in a step.
struct NonfiniteStep {
  std::vector<size_t> slots;  ///< slots with a non-finite loss, numbered over all processes in rank order
  std::vector<int64_t> gradient_ranks;  ///< ranks whose shard of the averaged gradients is not finite
};

/// Collective: one all-gather of [local slots + 1] fp64. `losses`: [local slots], fp64, and
/// `gradients_are_finite`: one bool, on the communicator's device, for which the host waits once. Returns the
/// same on all processes; std::nullopt if everything is finite.
std::optional<NonfiniteStep> find_nonfinite(Communicator& comm, const at::Tensor& losses,
                                            const at::Tensor& gradients_are_finite);

/// BatchNorm statistics of a process's slots, restored if a step is not applied.
class BufferBackup {
 public:
  explicit BufferBackup(const ParameterStore& store);
  void take();
  void put_back();

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> copies_;
};

}  // namespace sdp
