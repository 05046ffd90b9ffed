#pragma once

// Times operations on this machine's device with their real shapes; `plan --device measure` uses these times
// instead of estimates (forecast/operation_time.h).

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "forecast/operation_time.h"

namespace sdp {

/// Times each operation when its time is first requested: the functions of lib/model or ATen that the model
/// itself calls, forward and through autograd, with random tensors. The fastest of several runs counts,
/// because other activity on the machine only makes runs slower. Results of a pass stay allocated until its
/// backward pass, as in a training step. A large operation is timed on fewer samples, and its time is assumed
/// to be proportional to their number.
class OperationTimer {
 public:
  OperationTimer(at::Device device, Precision precision);

  double seconds(const Operation& operation, Pass pass, int64_t samples);

 private:
  struct PassSeconds {
    double forward = 0, backward = 0, frozen_backward = 0;
  };
  struct Case {
    Operation operation;
    int64_t samples = 1;
    auto operator<=>(const Case&) const = default;
  };

  PassSeconds timed(const Operation& operation, int64_t samples) const;

  at::Device device_;
  Precision precision_;
  std::map<Case, PassSeconds> timed_;
};

/// The timer's times in seconds. The returned function shares ownership of the timer.
OperationTimes measured_times(at::Device device, Precision precision);

}  // namespace sdp
