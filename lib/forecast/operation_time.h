#pragma once

// The time of a training step, from the shapes of its operations.
//
//   pass of an operation = kernels x launch + max(FLOPs / product rate, bytes moved / memory rate)
//   micro-batch          = sum over the operations of a worker's subnetwork, forward and backward
//
// Which operations: shared ones and those of the branches that the worker has, sliced where it has a part of
// the hidden width. Owned parts have a forward pass and both gradients, frozen parts (backward masking) a
// forward pass and the gradient of their input; what frozen parts do not keep, and with activation
// checkpointing every branch, has its forward pass twice. Several workers of a process run one after another.
//
// The product rate falls where matrix units are not filled. A GPU computes the result in tiles of some
// 128 x 128 elements: a narrow result leaves a part of a tile idle (tile quantization), and a result of few
// tiles leaves some of the multiprocessors idle, unless the product can be divided along its inner size
// (split-K); see NVIDIA, "Matrix Multiplication Background User's Guide". A convolution is the product
// [pixels, in k^2] x [in k^2, out] (implicit GEMM, Chetlur et al. 2014).
//
// On the device itself nothing has to be assumed: `plan --device measure` replaces the formula of a pass by
// the time of that operation on its true shape (measure/operation_timer.h).

#include <cstdint>
#include <functional>

#include "forecast/device_profile.h"
#include "subnet/operation.h"
#include "subnet/plan.h"

namespace sdp {

/// Seconds of one pass of an operation on `samples` samples.
using OperationTimes = std::function<double(const Operation& operation, Pass pass, int64_t samples)>;

/// By the formula above. The device's profile is copied.
OperationTimes estimated_times(const DeviceProfile& device, Precision precision);

/// Kernels that the pass launches, and elements (of the run's precision) that it reads and writes in a
/// sample. Of a product's matrices, those are counted that come from memory and go there once.
struct PassTraffic {
  double kernels = 0;
  double elements = 0;         ///< a sample
  double shared_elements = 0;  ///< whatever the number of samples: weights and their gradients
};
PassTraffic traffic_of(const Operation& operation, Pass pass);

/// A product [m, k] x [k, n] alone, `count` of them at once, without its launch.
double product_s(const DeviceProfile& device, double m, double k, double n, double count = 1);

struct ComputeTime {
  double forward_s = 0;
  double backward_s = 0;

  double total_s() const { return forward_s + backward_s; }
  ComputeTime& operator+=(const ComputeTime& other);
};

/// Of one micro-batch of a worker's subnetwork.
ComputeTime compute_time(const SubnetPlan& plan, int worker, int64_t samples, bool checkpoint_activations,
                         const OperationTimes& times);

}  // namespace sdp
