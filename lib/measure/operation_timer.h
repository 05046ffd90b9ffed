#pragma once

// Operations timed on this machine's device, on their true shapes: what `plan --device measure` puts in the
// place of an estimate (forecast/operation_time.h).

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "forecast/operation_time.h"

namespace sdp {

/// Times each operation when it is first asked for: the functions of lib/model, or of ATen, that the model
/// itself calls, forward and through autograd, with random tensors. Of several runs the fastest counts, as
/// whatever else the machine does only makes them slower. Results of a pass stand until its backward pass, as
/// in a training step. A large operation is timed on fewer samples, and its time is taken to grow with their
/// number.
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

/// The timer's seconds. The timer lives as long as the result.
OperationTimes measured_times(at::Device device, Precision precision);

}  // namespace sdp
