#include "measure/operation_timer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "device/device.h"
#include "model/conv.h"
#include "model/linear_cross_entropy.h"
#include "model/logit_rows.h"
#include "model/tensor_source.h"
#include "model/transformer.h"
#include "model/window_attention.h"

namespace sdp {
namespace {

/// An operation's inputs and weights, and the function that computes its result.
struct Runnable {
  std::vector<at::Tensor> inputs, weights;
  std::function<at::Tensor()> run;
  bool input_needs_gradient = true;
};

/// Makes the tensors of an operation for some samples.
class Maker {
 public:
  Maker(const Operation& operation, int64_t samples, at::Device device, Precision precision)
      : o_(operation),
        samples_(samples),
        options_(at::TensorOptions(scalar_type(compute_type(precision))).device(device)),
        norm_options_(precision == Precision::kBf16 ? options_.dtype(at::kFloat) : options_) {}

  Runnable make() const {
    Runnable result = made();
    result.input_needs_gradient = o_.input_needs_gradient;
    return result;
  }

 private:
  at::Tensor random(at::IntArrayRef shape) const { return at::randn(shape, options_).mul_(0.1); }
  at::Tensor ones(int64_t size) const { return at::ones({size}, norm_options_); }
  at::Tensor zeros(int64_t size) const { return at::zeros({size}, norm_options_); }
  at::Tensor labels(int64_t rows, int64_t classes) const {
    return at::randint(classes, {rows}, options_.dtype(at::kLong));
  }
  /// Channels first, with a square feature map.
  at::Tensor map(int64_t channels, int64_t positions, int64_t stride = 1) const {
    const auto side = std::max<int64_t>(1, std::llround(std::sqrt(static_cast<double>(positions)))) * stride;
    return random({samples_, channels, side, side});
  }
  at::Tensor vectors() const { return random({samples_, o_.rows, o_.in}); }

  static Runnable of_one(at::Tensor x, std::function<at::Tensor(const at::Tensor&)> f) {
    return {.inputs = {x}, .weights = {}, .run = [x, f] { return f(x); }};
  }

  Runnable made() const {
    switch (o_.kind) {
      case OperationKind::kLinear:
        return linear();
      case OperationKind::kConvolution:
        return convolution();
      case OperationKind::kWindowAttention:
        return window_attention();
      case OperationKind::kCausalAttention:
        return causal();
      case OperationKind::kLinearCrossEntropy:
        return head();
      case OperationKind::kBatchNorm:
        return batch_norm();
      case OperationKind::kLayerNorm:
        return layer_norm();
      case OperationKind::kRmsNorm: {
        const at::Tensor x = vectors(), w = ones(o_.in);
        return {.inputs = {x}, .weights = {w}, .run = [x, w] { return rms_norm(x, w, 1e-6); }};
      }
      case OperationKind::kRelu:
        return of_one(vectors(), [](const at::Tensor& x) { return at::relu(x); });
      case OperationKind::kGelu:
        return of_one(vectors(), [](const at::Tensor& x) { return at::gelu(x); });
      case OperationKind::kSwiGlu: {
        const at::Tensor gate = vectors(), up = vectors();
        return {.inputs = {gate, up}, .weights = {}, .run = [gate, up] { return swiglu(gate, up); }};
      }
      case OperationKind::kRotary: {
        const at::Tensor x = vectors().unflatten(-1, {-1, o_.head_size});
        const RotaryTable table = rotary_table(o_.rows, rotary_frequencies(o_.head_size, 1e4, x));
        return of_one(x, [table](const at::Tensor& input) { return rotate(input, table); });
      }
      case OperationKind::kAdd: {
        const at::Tensor branch = vectors();
        return of_one(vectors(), [branch](const at::Tensor& x) { return x + branch; });
      }
      case OperationKind::kCopy:
        return of_one(vectors(), [](const at::Tensor& x) {
          return x.transpose(0, 1).clone(at::MemoryFormat::Contiguous);
        });
      case OperationKind::kMaxPool:
        return of_one(map(o_.in, o_.rows), [](const at::Tensor& x) {
          return at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
        });
      case OperationKind::kMean:
        return of_one(vectors(), [](const at::Tensor& x) { return x.mean(1); });
      case OperationKind::kEmbedding: {
        const at::Tensor table = random({o_.out, o_.in}), tokens = labels(samples_ * o_.rows, o_.out);
        return {.inputs = {}, .weights = {table}, .run = [table, tokens] {
                  return at::embedding(table, tokens);
                }};
      }
      case OperationKind::kCrossEntropy: {
        const at::Tensor target = labels(samples_, o_.in);
        return of_one(random({samples_, o_.in}), [target](const at::Tensor& x) {
          return at::cross_entropy_loss(x.to(at::kFloat), target);
        });
      }
    }
    return {};
  }

  Runnable linear() const {
    const at::Tensor x = vectors(), w = random({o_.out, o_.in});
    if (!o_.bias) return {.inputs = {x}, .weights = {w}, .run = [x, w] { return at::linear(x, w); }};
    const at::Tensor b = random({o_.out});
    return {.inputs = {x}, .weights = {w, b}, .run = [x, w, b] { return at::linear(x, w, b); }};
  }

  Runnable convolution() const {
    const at::Tensor x = map(o_.in, o_.rows, o_.stride), w = random({o_.out, o_.in, o_.kernel, o_.kernel});
    const int64_t stride = o_.stride, padding = o_.kernel % 2 == 1 ? o_.kernel / 2 : 0;
    return {.inputs = {x}, .weights = {w}, .run = [=] { return conv2d(x, w, stride, padding); }};
  }

  Runnable batch_norm() const {
    const at::Tensor x = map(o_.in, o_.rows), w = ones(o_.in), b = zeros(o_.in);
    const at::Tensor mean = zeros(o_.in), variance = ones(o_.in);
    return {.inputs = {x}, .weights = {w, b}, .run = [=] {
              return at::batch_norm(x, w, b, mean, variance, /*training=*/true, /*momentum=*/0.1,
                                    /*eps=*/1e-5,
                                    /*cudnn_enabled=*/true);
            }};
  }

  Runnable layer_norm() const {
    const at::Tensor x = vectors(), w = ones(o_.in), b = zeros(o_.in);
    return {.inputs = {x}, .weights = {w, b}, .run = [=] { return sdp::layer_norm(x, w, b, 1e-5); }};
  }

  Runnable window_attention() const {
    const int64_t windows = samples_ * o_.rows / o_.span, heads = o_.in / o_.head_size;
    const auto side = std::llround(std::sqrt(static_cast<double>(o_.span)));
    const at::Tensor qkv = random({windows, o_.span, 3 * o_.in});
    const WindowAttention attention{
        .bias_table = random({(2 * side - 1) * (2 * side - 1), heads}),
        .position_index = relative_position_index(side).to(options_.device()),
        .shift_mask = {},
    };
    return {.inputs = {qkv}, .weights = {attention.bias_table}, .run = [=] { return attention(qkv); }};
  }

  Runnable causal() const {
    std::vector<at::Tensor> qkv;
    for (int i = 0; i < 3; ++i)
      qkv.push_back(vectors().unflatten(-1, {-1, o_.head_size}));
    return {.inputs = qkv, .weights = {}, .run = [qkv] { return causal_attention(qkv[0], qkv[1], qkv[2]); }};
  }

  Runnable head() const {
    const at::Tensor x = random({samples_ * o_.rows, o_.in}), w = random({o_.out, o_.in});
    const at::Tensor target = labels(samples_ * o_.rows, o_.out);
    const int64_t rows = logit_rows_at_a_time(o_.out);
    return {.inputs = {x}, .weights = {w}, .run = [=] {
              return linear_cross_entropy(x, w, target, /*label_smoothing=*/0, rows);
            }};
  }

  const Operation& o_;
  int64_t samples_;
  at::TensorOptions options_, norm_options_;
};

void set_needs_gradient(const std::vector<at::Tensor>& tensors, bool needs) {
  for (const at::Tensor& tensor : tensors)
    tensor.requires_grad_(needs);
}

/// Waits for the device, then reads the clock, in seconds.
class Clock {
 public:
  explicit Clock(at::Device device)
      : other_(at::empty({kCacheBytes}, at::TensorOptions(at::kByte).device(device))) {}

  /// Evicts the caches, as the other operations of a step do.
  double start() {
    other_.fill_(++value_);
    return now();
  }
  double now() const {
    synchronize(other_.device());
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  /// More than a core's own cache, and half of the shared cache.
  static constexpr int64_t kCacheBytes = int64_t{16} << 20;
  at::Tensor other_;
  uint8_t value_ = 0;
};

struct Seconds {
  double forward = 0, backward = 0;
};

/// The fastest of some runs. The results of all runs stay allocated until the last forward pass is done.
Seconds fastest(const Runnable& operation, Clock& clock) {
  constexpr size_t kFewestRuns = 3, kMostRuns = 9;  // the first run is a warm-up
  constexpr double kLongEnough = 0.05;
  Seconds best{.forward = HUGE_VAL, .backward = HUGE_VAL};
  std::vector<at::Tensor> results;
  double all = 0;
  while (results.size() < kFewestRuns || (all < kLongEnough && results.size() < kMostRuns)) {
    const double began = clock.start();
    results.push_back(operation.run());
    const double seconds = clock.now() - began;
    all += seconds;
    if (results.size() > 1) best.forward = std::min(best.forward, seconds);
  }
  if (!results.front().requires_grad()) return {.forward = best.forward, .backward = 0};
  const at::Tensor gradient = at::ones_like(results.front());
  for (bool is_first = true; !results.empty(); is_first = false) {
    const double began = clock.start();
    results.back().backward(gradient);
    if (!is_first) best.backward = std::min(best.backward, clock.now() - began);
    results.pop_back();
    for (const std::vector<at::Tensor>* leaves : {&operation.inputs, &operation.weights})
      for (const at::Tensor& leaf : *leaves)
        leaf.mutable_grad() = at::Tensor();
  }
  return best;
}

/// Samples on which an operation is timed: enough for a millisecond on a fast device.
int64_t timed_samples(const Operation& operation, int64_t samples) {
  constexpr double kMostFlops = 4e9;
  constexpr double kMostElements = 16e6;
  const double flops = flops_of(operation).forward;
  const double elements = static_cast<double>(
      operation.rows * std::max(operation.in, has_product(operation.kind) ? operation.out : 0));
  const double most = std::min(kMostFlops / std::max(flops, 1.0), kMostElements / std::max(elements, 1.0));
  return std::clamp<int64_t>(static_cast<int64_t>(most), 1, samples);
}

}  // namespace

OperationTimer::OperationTimer(at::Device device, Precision precision)
    : device_(device), precision_(precision) {}

OperationTimer::PassSeconds OperationTimer::timed(const Operation& operation, int64_t samples) const {
  const Runnable runnable = Maker(operation, samples, device_, precision_).make();
  Clock clock(device_);
  PassSeconds result;
  set_needs_gradient(runnable.inputs, runnable.input_needs_gradient);
  set_needs_gradient(runnable.weights, true);
  const Seconds owned = fastest(runnable, clock);
  result.forward = owned.forward;
  // In the backward pass, autograd adds the gradients of both paths where they meet.
  result.backward = operation.kind == OperationKind::kAdd ? owned.forward : owned.backward;
  if (operation.sliced == SlicedSize::kNone || runnable.weights.empty() || !runnable.input_needs_gradient) {
    result.frozen_backward = result.backward;
    return result;
  }
  set_needs_gradient(runnable.weights, false);
  result.frozen_backward = fastest(runnable, clock).backward;
  return result;
}

double OperationTimer::seconds(const Operation& operation, Pass pass, int64_t samples) {
  const int64_t on = timed_samples(operation, samples);
  Case entry{.operation = operation, .samples = on};
  entry.operation.recomputed_if_frozen = false;  // the operation is the same however often it runs
  auto found = timed_.find(entry);
  if (found == timed_.end()) found = timed_.emplace(entry, timed(operation, on)).first;
  const double factor = static_cast<double>(samples) / static_cast<double>(on);
  switch (pass) {
    case Pass::kForward:
      return factor * found->second.forward;
    case Pass::kBackward:
      return factor * found->second.backward;
    case Pass::kFrozenBackward:
      return factor * found->second.frozen_backward;
  }
  return 0;
}

OperationTimes measured_times(at::Device device, Precision precision) {
  auto timer = std::make_shared<OperationTimer>(device, precision);
  return [timer](const Operation& operation, Pass pass, int64_t samples) {
    return timer->seconds(operation, pass, samples);
  };
}

}  // namespace sdp
