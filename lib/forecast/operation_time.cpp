#include "forecast/operation_time.h"

#include <algorithm>
#include <cmath>

#include "subnet/element_type.h"

namespace sdp {
namespace {

/// Kernels of a pass, and elements that they move per element of [rows, in].
struct Moved {
  double kernels = 0;
  double elements = 0;
};
struct MovedByPass {
  Moved forward, backward;
};

/// Elements read and written by the kernels that ATen or model/transformer.cpp launches.
MovedByPass moved_by(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBatchNorm:  // statistics, normalization; the backward pass reads both inputs twice
      return {{2, 3}, {2, 5}};
    case OperationKind::kLayerNorm:
      return {{1, 2}, {3, 5}};
    case OperationKind::kRmsNorm:  // square, mean, + eps, rsqrt, two products; their gradients
      return {{6, 7}, {9, 19}};
    case OperationKind::kRelu:
    case OperationKind::kGelu:
      return {{1, 2}, {1, 3}};
    case OperationKind::kSwiGlu:  // silu, product; a row has `in` elements of gate and of up
      return {{2, 5}, {4, 11}};
    case OperationKind::kRotary:  // four products of halves, sum, difference, concatenation
      return {{7, 9}, {8, 11}};
    case OperationKind::kAdd:  // the backward pass adds the gradients of both paths
      return {{1, 3}, {1, 3}};
    case OperationKind::kCopy:
      return {{1, 2}, {1, 2}};
    case OperationKind::kMaxPool:
      return {{1, 1.75}, {2, 1.75}};
    case OperationKind::kMean:
      return {{1, 1}, {1, 1}};
    case OperationKind::kEmbedding:  // the gradient is a table of zeros to which rows are added
      return {{1, 2}, {2, 3}};
    case OperationKind::kCrossEntropy:  // log-softmax and selection of the labels' entries
      return {{4, 4}, {3, 4}};
    default:
      return {};
  }
}

/// The logits are widened, then log-sum-exp, sum of losses, gradient in place of the logits.
constexpr Moved kLogits{.kernels = 12, .elements = 10};
/// Fused attention launches one kernel in the forward pass and three in the backward pass.
constexpr double kAttentionKernels[] = {1, 3};

PassTraffic product_traffic(const Operation& operation, Pass pass) {
  const auto rows = static_cast<double>(operation.rows);
  const auto in = static_cast<double>(operation.in);
  const auto out = static_cast<double>(operation.out);
  const auto taps = static_cast<double>(operation.kernel * operation.kernel);
  const auto strides = static_cast<double>(operation.stride * operation.stride);
  const double products = pass == Pass::kForward
                              ? 1
                              : (pass == Pass::kBackward ? 1 : 0) + (operation.input_needs_gradient ? 1 : 0);
  // The product's kernel adds the bias; the bias's gradient is a sum over the rows.
  const double sums = operation.bias && pass == Pass::kBackward ? 1 : 0;
  return {.kernels = products + sums,
          .elements = products * rows * (in * strides + out) + sums * rows * out,
          .shared_elements = products * in * taps * out};
}

double seconds_of_products(const Operation& operation, Pass pass, double samples,
                           const DeviceProfile& device) {
  const double rows = static_cast<double>(operation.rows) * samples;
  const double in =
      static_cast<double>(operation.in) * static_cast<double>(operation.kernel * operation.kernel);
  const auto out = static_cast<double>(operation.out);
  const double forward = product_s(device, rows, in, out);
  const double of_weight = product_s(device, in, rows, out);
  const double of_input = operation.input_needs_gradient ? product_s(device, rows, out, in) : 0;
  switch (pass) {
    case Pass::kForward:
      return forward;
    case Pass::kBackward:
      return of_weight + of_input;
    case Pass::kFrozenBackward:
      return of_input;
  }
  return 0;
}

/// All products of attention have the sizes span, span and head size, with one product per head and window.
double seconds_of_attention(const Operation& operation, Pass pass, double samples,
                            const DeviceProfile& device) {
  const auto span = static_cast<double>(operation.span);
  const auto head_size = static_cast<double>(operation.head_size);
  const double count =
      samples * static_cast<double>(operation.rows) / span * static_cast<double>(operation.in) / head_size;
  // The causal kernel skips the masked half of the scores.
  const double computed = operation.kind == OperationKind::kCausalAttention ? 0.5 : 1;
  const double products = flops_of(operation).of(pass) / (2 * static_cast<double>(operation.rows) * span *
                                                          static_cast<double>(operation.in));
  return products * computed * product_s(device, span, head_size, span, count);
}

double estimated_s(const Operation& operation, Pass pass, int64_t samples, const DeviceProfile& device,
                   double bytes_per_element) {
  const auto n = static_cast<double>(samples);
  const PassTraffic traffic = traffic_of(operation, pass);
  const double moved_s =
      (traffic.elements * n + traffic.shared_elements) * bytes_per_element / device.memory_bytes_per_s;
  double products_s = 0;
  switch (operation.kind) {
    case OperationKind::kLinear:
    case OperationKind::kConvolution:
      products_s = seconds_of_products(operation, pass, n, device);
      break;
    case OperationKind::kLinearCrossEntropy:  // computes its gradients in the forward pass
      if (pass == Pass::kForward)
        products_s = seconds_of_products(operation, Pass::kForward, n, device) +
                     seconds_of_products(operation, Pass::kBackward, n, device);
      break;
    case OperationKind::kWindowAttention:
    case OperationKind::kCausalAttention:
      products_s = seconds_of_attention(operation, pass, n, device);
      break;
    default:
      break;
  }
  return traffic.kernels * device.launch_s + std::max(products_s, moved_s);
}

/// Adds an operation's passes to the time.
class Passes {
 public:
  Passes(int64_t samples, bool checkpoint_activations, const OperationTimes& times, ComputeTime& time)
      : samples_(samples), checkpoints_(checkpoint_activations), times_(times), time_(time) {}

  void forward(const Operation& operation) { time_.forward_s += times_(operation, Pass::kForward, samples_); }
  void shared(const Operation& operation) { owned(operation, /*in_branch=*/false); }
  void owned(const Operation& operation, bool in_branch = true) {
    const double forward_s = times_(operation, Pass::kForward, samples_);
    time_.forward_s += forward_s;
    time_.backward_s += times_(operation, Pass::kBackward, samples_);
    if (in_branch && checkpoints_) time_.backward_s += forward_s;
  }
  void frozen(const Operation& operation) {
    const double forward_s = times_(operation, Pass::kForward, samples_);
    time_.forward_s += forward_s;
    time_.backward_s += times_(operation, Pass::kFrozenBackward, samples_);
    if (operation.recomputed_if_frozen) time_.backward_s += forward_s;
    if (checkpoints_) time_.backward_s += forward_s;
  }

 private:
  int64_t samples_;
  bool checkpoints_;
  const OperationTimes& times_;
  ComputeTime& time_;
};

void add_branch(Passes& passes, const SubnetPlan& plan, int worker, int index) {
  const BranchLayout& branch = plan.layout.branches[index];
  const int64_t owned = plan.owned_width(worker, index);
  const int64_t frozen = plan.frozen_width(worker, index);
  if (owned + frozen == 0 && plan.construction == Construction::kBlock) return;
  // Operations that are not sliced belong to the unit, or in neuron construction to all workers.
  const bool trains_whole = owned > 0 || plan.construction == Construction::kNeuron;
  for (const Operation& operation : branch.operations) {
    if (owned + frozen == 0) {
      // A worker without a slice runs the unsliced products in the forward pass only, for the statistics of
      // the BatchNorm that follows them. Norms and additions without a product take negligible time.
      if (operation.sliced == SlicedSize::kNone && has_product(operation.kind)) passes.forward(operation);
      continue;
    }
    if (operation.sliced == SlicedSize::kNone) {
      trains_whole ? passes.owned(operation) : passes.frozen(operation);
      continue;
    }
    if (owned > 0) passes.owned(operation.slice(owned, branch.hidden_width));
    if (frozen > 0) passes.frozen(operation.slice(frozen, branch.hidden_width));
  }
}

}  // namespace

PassTraffic traffic_of(const Operation& operation, Pass pass) {
  const auto rows = static_cast<double>(operation.rows);
  const auto in = static_cast<double>(operation.in);
  const auto out = static_cast<double>(operation.out);
  const bool forward = pass == Pass::kForward;
  switch (operation.kind) {
    case OperationKind::kLinear:
    case OperationKind::kConvolution:
      return product_traffic(operation, pass);
    case OperationKind::kLinearCrossEntropy:
      return forward ? PassTraffic{.kernels = 3 + kLogits.kernels,
                                   .elements = rows * (4 * in + kLogits.elements * out),
                                   .shared_elements = 4 * in * out}
                     : PassTraffic{.kernels = 2, .elements = 2 * rows * in, .shared_elements = 2 * in * out};
    case OperationKind::kWindowAttention: {
      // q, k, v and the result; the score bias, which has the size of the probabilities.
      const double scores =
          rows * static_cast<double>(operation.span) * in / static_cast<double>(operation.head_size);
      return forward
                 ? PassTraffic{.kernels = kAttentionKernels[0] + 2, .elements = 4 * rows * in + 2 * scores}
                 : PassTraffic{.kernels = kAttentionKernels[1] + 2, .elements = 8 * rows * in + 3 * scores};
    }
    case OperationKind::kCausalAttention:
      return {.kernels = kAttentionKernels[forward ? 0 : 1], .elements = (forward ? 4 : 8) * rows * in};
    case OperationKind::kEmbedding:
      return {.kernels = forward ? 1.0 : 2.0,
              .elements = (forward ? 2 : 3) * rows * in,
              .shared_elements = forward ? 0 : in * out};
    default: {
      const MovedByPass moved = moved_by(operation.kind);
      const Moved& of_pass = forward ? moved.forward : moved.backward;
      return {.kernels = of_pass.kernels, .elements = of_pass.elements * rows * in};
    }
  }
}

double product_s(const DeviceProfile& device, double m, double k, double n, double count) {
  const auto side = static_cast<double>(device.tile_side);
  const double rows = std::ceil(m / side);
  const double columns = std::ceil(n / side);
  // Below about a thousand terms, dividing the sum does not pay off.
  constexpr double kFewestTerms = 1024;
  const double parts = rows * columns * count * std::max(1.0, std::floor(k / kFewestTerms));
  const double busy = std::min(1.0, parts / static_cast<double>(device.tiles_at_once));
  return 2 * rows * side * columns * side * k * count / (device.flops_per_s * busy);
}

OperationTimes estimated_times(const DeviceProfile& device, Precision precision) {
  const auto bytes = static_cast<double>(bytes_of(compute_type(precision)));
  return [device, bytes](const Operation& operation, Pass pass, int64_t samples) {
    return estimated_s(operation, pass, samples, device, bytes);
  };
}

ComputeTime& ComputeTime::operator+=(const ComputeTime& other) {
  forward_s += other.forward_s;
  backward_s += other.backward_s;
  return *this;
}

ComputeTime compute_time(const SubnetPlan& plan, int worker, int64_t samples, bool checkpoint_activations,
                         const OperationTimes& times) {
  ComputeTime time;
  Passes passes(samples, checkpoint_activations, times, time);
  for (const Operation& operation : plan.layout.stem_operations)
    passes.shared(operation);
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b) {
    add_branch(passes, plan, worker, b);
    for (const Operation& operation : plan.layout.branches[b].shared_operations)
      passes.shared(operation);
  }
  return time;
}

}  // namespace sdp
