#include "measure/call_timer.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "capture/recorded_call.h"
#include "device/device.h"
#include "engine/clocks.h"
#include "model/conv.h"

namespace sdp {
namespace {

/// Times single calls, each after other memory has been written, as the other operators of a step do.
class Stopwatch {
 public:
  explicit Stopwatch(at::Device device)
      : other_(at::empty({device.is_cpu() ? kCpuCacheBytes : kGpuCacheBytes},
                         at::TensorOptions(at::kByte).device(device))) {}

  double seconds(const std::function<void()>& run) {
    synchronize(other_.device());
    other_.fill_(++value_);
    return other_.is_cuda() ? on_device_s(run) : on_host_s(run);
  }

 private:
  static double on_host_s(const std::function<void()>& run) {
    const auto began = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  /// The call is launched while the device still writes: its time has no launch in it, as in a step, whose
  /// launches go ahead of the device.
  double on_device_s(const std::function<void()>& run) const {
    const c10::Event began = timed_event(other_.device());
    run();
    const c10::Event ended = timed_event(other_.device());
    synchronize(other_.device());
    return began.elapsedTime(ended) / 1e3;
  }

  /// More than a core's own cache, and half of the shared cache.
  static constexpr int64_t kCpuCacheBytes = int64_t{16} << 20;
  /// More than the cache of any of the known GPUs.
  static constexpr int64_t kGpuCacheBytes = int64_t{256} << 20;
  at::Tensor other_;
  uint8_t value_ = 0;
};

double fastest_call_s(const std::function<void()>& run, Stopwatch& stopwatch) {
  constexpr int kFewestRuns = 3, kMostRuns = 9;  // the first run is a warm-up
  constexpr double kLongEnough = 0.05;
  double best = HUGE_VAL;
  double all = 0;
  for (int i = 0; i < kFewestRuns || (all < kLongEnough && i < kMostRuns); ++i) {
    const double seconds = stopwatch.seconds(run);
    all += seconds;
    if (i > 0) best = std::min(best, seconds);
  }
  return best;
}

at::Tensor tensor_of(const RecordedTensor& tensor, double samples, at::Device device) {
  const at::TensorOptions options = at::TensorOptions(tensor.type).device(device);
  const std::vector<int64_t> shape = tensor.shape(samples);
  // Integers are indices; 0 is always valid.
  if (!at::isFloatingType(tensor.type)) return at::zeros(shape, options);
  const at::Tensor values = at::randn(shape, options).mul_(0.1);
  return tensor.is_channels_last ? values.contiguous(map_format(tensor.type, device.is_cuda())) : values;
}

c10::IValue value_of(const RecordedArgument& argument, double samples, at::Device device) {
  if (const auto* tensor = std::get_if<RecordedTensor>(&argument)) return tensor_of(*tensor, samples, device);
  if (const auto* list = std::get_if<std::vector<RecordedTensor>>(&argument)) {
    c10::List<at::Tensor> tensors;
    for (const RecordedTensor& tensor : *list)
      tensors.push_back(tensor_of(tensor, samples, device));
    return tensors;
  }
  const auto& value = std::get<c10::IValue>(argument);
  return value.isGenerator() ? c10::IValue() : value;  // a recorded one is a CPU's; none is the device's own
}

/// A GPU computes attention with a kernel of its own, which autograd chooses.
std::function<void()> attention_on_gpu(const std::vector<c10::IValue>& arguments, bool is_backward) {
  const size_t first = is_backward ? 1 : 0;
  const at::Tensor q = arguments[first].toTensor(), k = arguments[first + 1].toTensor(),
                   v = arguments[first + 2].toTensor();
  const bool is_causal = arguments[is_backward ? 7 : 4].toBool();
  const auto forward = [=] {
    return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0, is_causal);
  };
  if (!is_backward) return forward;
  for (const at::Tensor& tensor : {q, k, v})
    tensor.requires_grad_();
  const at::AutoGradMode with_grad(true);
  return [=, result = forward(), gradient = arguments[0].toTensor()] {
    torch::autograd::grad({result}, {q, k, v}, {gradient}, /*retain_graph=*/true);
  };
}

/// Runs the call on random tensors.
std::function<void()> runnable(const RecordedCall& call, double samples, at::Device device) {
  std::vector<c10::IValue> arguments;
  for (const RecordedArgument& argument : call.arguments)
    arguments.push_back(value_of(argument, samples, device));
  const c10::OperatorName& op = call.op;
  const std::string attention = "aten::_scaled_dot_product_flash_attention_for_cpu";
  if (device.is_cuda() && op.name.starts_with(attention))
    return attention_on_gpu(arguments, /*is_backward=*/op.name != attention);
  const c10::OperatorHandle handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(op.name.c_str(), op.overload_name.c_str());
  return [handle, arguments] {
    std::vector<c10::IValue> stack = arguments;
    handle.callBoxed(stack);
  };
}

/// Calls with the same text take the same time.
std::string text_of(const RecordedCall& call, double samples) {
  std::ostringstream text;
  text << call.op.name << '.' << call.op.overload_name;
  const auto add = [&](const RecordedTensor& tensor) {
    text << ' ' << tensor.type << (tensor.is_channels_last ? " channels_last" : "");
    for (const int64_t size : tensor.shape(samples))
      text << ',' << size;
  };
  for (const RecordedArgument& argument : call.arguments) {
    if (const auto* tensor = std::get_if<RecordedTensor>(&argument))
      add(*tensor);
    else if (const auto* list = std::get_if<std::vector<RecordedTensor>>(&argument))
      std::for_each(list->begin(), list->end(), add);
    else if (const auto& value = std::get<c10::IValue>(argument); !value.isGenerator())
      text << ' ' << value;
  }
  return text.str();
}

/// Samples on which a call is timed: all of them on a GPU, on a CPU enough for some milliseconds. All of them
/// if the call does not depend on their number.
double timed_samples(const CapturedCall& call, double samples, at::Device device) {
  constexpr double kMostFlops = 4e9;
  constexpr double kMostBytes = 128e6;
  if (device.is_cuda() || call.bytes.per_sample == 0) return samples;
  const double most = std::min(kMostFlops / std::max(call.flops(1), 1.0), kMostBytes / call.bytes.of(1));
  return std::clamp(std::floor(most), 1.0, samples);
}

class CallTimer {
 public:
  explicit CallTimer(at::Device device) : device_(device) {}

  double seconds(const CapturedCall& call, double samples) {
    const double on = timed_samples(call, samples, device_);
    const auto [found, is_new] = timed_.try_emplace(text_of(*call.recorded, on));
    if (is_new) {
      const at::NoGradGuard no_grad;
      Stopwatch stopwatch(device_);  // not kept: `plan --measure` counts memory afterwards
      found->second = fastest_call_s(runnable(*call.recorded, on, device_), stopwatch);
    }
    return samples / on * found->second;
  }

 private:
  const at::Device device_;
  std::map<std::string, double> timed_;
};

}  // namespace

CallTimes measured_times(c10::Device device) {
  auto timer = std::make_shared<CallTimer>(device);
  return [timer](const CapturedCall& call, double samples) { return timer->seconds(call, samples); };
}

}  // namespace sdp
