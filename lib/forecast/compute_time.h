#pragma once

// The time of a training step's forward and backward passes, from the operators that they call
// (capture/step_captures.h).
//
//   call        = launch + max(FLOPs / product rate, bytes moved / memory rate)
//   micro-batch = sum over the calls of a worker's step, forward and backward
//
// The recomputation of what frozen parts do not save, and of whole branches with activation checkpointing, is
// among the calls. Several workers of a process run one after another.
//
// The product rate is lower where matrix units are not filled. A GPU computes the result in tiles of about
// 128 x 128 elements: a narrow result leaves a part of a tile idle (tile quantization), and a result of few
// tiles leaves some of the multiprocessors idle, unless the product can be divided along its inner dimension
// (split-K); see NVIDIA, "Matrix Multiplication Background User's Guide".
//
// On the device itself no assumption is needed: `plan --device measure` replaces the formula of a call by its
// measured time (measure/call_timer.h).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "capture/step_captures.h"
#include "forecast/device_profile.h"

namespace sdp {

/// Seconds of a call for a batch of `samples`.
using CallTimes = std::function<double(const CapturedCall& call, double samples)>;

/// Times by the formula above. The device's profile is copied.
CallTimes estimated_times(const DeviceProfile& device);

/// Seconds of `count` products [m, k] x [k, n] in one kernel, without its launch.
double product_s(const DeviceProfile& device, double m, double k, double n, double count = 1);

struct ComputeTime {
  double forward_s = 0;
  double backward_s = 0;

  double total_s() const { return forward_s + backward_s; }
  ComputeTime& operator+=(const ComputeTime& other);

  template <class Visitor>
  static void fields(Visitor& field) {
    field("forward_s", &ComputeTime::forward_s);
    field("backward_s", &ComputeTime::backward_s);
  }
};

/// Times of micro-batches. The captures must outlive this object.
class ComputeTimes {
 public:
  ComputeTimes(StepCaptures& captures, CallTimes of_call)
      : captures_(captures), of_call_(std::move(of_call)) {}

  ComputeTime of(int worker, int64_t samples);

 private:
  double seconds_of(const PassCapture& pass, double samples) const;

  StepCaptures& captures_;
  const CallTimes of_call_;
  std::map<std::pair<std::shared_ptr<const SegmentCapture>, int64_t>, ComputeTime> of_segment_;
};

}  // namespace sdp
