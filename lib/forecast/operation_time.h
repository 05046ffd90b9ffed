#pragma once

// The time of a training step, from the shapes of its operations.
//
//   pass of an operation = kernels x launch + max(FLOPs / product rate, bytes moved / memory rate)
//   micro-batch          = sum over the operations of a worker's subnetwork, forward and backward
//
// The operations are the shared ones and those of the worker's branches, sliced where the worker has a part
// of the hidden width. Owned parts have a forward pass and both gradients; frozen parts (backward masking)
// have a forward pass and the gradient of their input. The forward pass is computed twice for operations
// whose result frozen parts do not save, and with activation checkpointing for every branch. Several workers
// of a process run one after another.
//
// The product rate is lower where matrix units are not filled. A GPU computes the result in tiles of about
// 128 x 128 elements: a narrow result leaves a part of a tile idle (tile quantization), and a result of few
// tiles leaves some of the multiprocessors idle, unless the product can be divided along its inner dimension
// (split-K); see NVIDIA, "Matrix Multiplication Background User's Guide". A convolution counts as the product
// [pixels, in k^2] x [in k^2, out] (implicit GEMM, Chetlur et al. 2014).
//
// On the device itself no assumption is needed: `plan --device measure` replaces the formula of a pass by the
// measured time of the operation on its actual shape (measure/operation_timer.h).

#include <cstdint>
#include <functional>

#include "forecast/device_profile.h"
#include "subnet/operation.h"
#include "subnet/plan.h"

namespace sdp {

/// Seconds of one pass of an operation on `samples` samples.
using OperationTimes = std::function<double(const Operation& operation, Pass pass, int64_t samples)>;

/// Times by the formula above. The device's profile is copied.
OperationTimes estimated_times(const DeviceProfile& device, Precision precision);

/// Kernels that the pass launches, and elements (in the run's precision) that it reads and writes. Each
/// matrix of a product is counted as read or written once.
struct PassTraffic {
  double kernels = 0;
  double elements = 0;         ///< per sample
  double shared_elements = 0;  ///< independent of the number of samples: weights and their gradients
};
PassTraffic traffic_of(const Operation& operation, Pass pass);

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

/// Time of one micro-batch of a worker's subnetwork.
ComputeTime compute_time(const SubnetPlan& plan, int worker, int64_t samples, bool checkpoint_activations,
                         const OperationTimes& times);

}  // namespace sdp
