#pragma once

// trace.jsonl (output.trace): the loss and the samples of every worker in every step.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "experiment/experiment.h"
#include "telemetry/metrics.h"
#include "telemetry/run_folder.h"

namespace sdp {

class StepTrace {
 public:
  /// Rank 0 appends to the trace in the run folder. The arguments must outlive it.
  StepTrace(const Experiment& experiment, const RunFolder& folder, Communicator& comm);

  /// `losses`: [local slots], fp64. `samples`: this process's samples, by micro-batch, then by slot.
  /// Collective.
  void append(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples);

 private:
  const Experiment& experiment_;
  Communicator& comm_;
  std::optional<JsonLines> lines_;  ///< rank 0 only
};

}  // namespace sdp
