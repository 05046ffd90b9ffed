#include "measure/measure.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "comm/fake_group.h"
#include "device/device.h"
#include "engine/engine.h"
#include "model/tensor_source.h"
#include "train/train_step.h"

namespace sdp {
namespace {

TensorBatch random_batch(const ExperimentSpec& spec, at::Device device) {
  const int64_t samples = spec.train.batch_size_per_worker;
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(device);
  if (spec.data.is_of_tokens()) {
    const std::vector<int64_t> shape = {samples, spec.data.sequence_length()};
    return {.input = at::randint(spec.model.vocab_size(), shape, integers),
            .labels = at::randint(spec.model.vocab_size(), shape, integers)};
  }
  const int64_t side = spec.model.image_size();
  const auto type = scalar_type(compute_type(spec.train.precision));
  return {.input = at::randn({samples, 3, side, side}, at::TensorOptions(type).device(device)),
          .labels = at::randint(spec.model.num_classes(), {samples}, integers)};
}

/// Minimum duration, so that the overhead of a measurement does not count.
constexpr double kEnoughSeconds = 0.02;

/// Seconds of the fastest of a few runs after one warm-up run.
template <class Run>
double fastest_s(at::Device device, Run run) {
  constexpr int kTimes = 3;
  double fastest = 0;
  for (int i = 0; i <= kTimes; ++i) {
    synchronize(device);
    const auto began = std::chrono::steady_clock::now();
    run();
    synchronize(device);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (i == 1 || (i > 1 && seconds < fastest)) fastest = seconds;
  }
  return fastest;
}

/// FLOP/s of a square matrix product: the smallest side, a power of two, whose product takes long enough.
double product_rate(const at::TensorOptions& options) {
  constexpr int64_t kLargestSide = 8192;
  for (int64_t side = 512;; side *= 2) {
    const at::Tensor a = at::ones({side, side}, options);
    at::Tensor product = at::empty({side, side}, options);
    const double seconds = fastest_s(options.device(), [&] { at::mm_out(product, a, a); });
    const auto length = static_cast<double>(side);
    if (seconds >= kEnoughSeconds || side == kLargestSide) return 2 * length * length * length / seconds;
  }
}

/// Bytes per second that a large copy reads and writes.
double memory_rate(at::Device device) {
  constexpr int64_t kLeastBytes = int64_t{128} << 20;  // more than fits into caches
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  for (int64_t bytes = kLeastBytes;; bytes *= 2) {
    const at::Tensor source = at::ones({bytes}, at::TensorOptions(at::kByte).device(device));
    at::Tensor target = at::empty_like(source);
    const double seconds = fastest_s(device, [&] { target.copy_(source); });
    if (seconds >= kEnoughSeconds || bytes == kMostBytes) return 2 * static_cast<double>(bytes) / seconds;
  }
}

double launch_s(const at::TensorOptions& options) {
  constexpr int kLaunches = 256;
  at::Tensor one = at::zeros({1}, options);
  return fastest_s(options.device(),
                   [&] {
                     for (int i = 0; i < kLaunches; ++i)
                       one.add_(1);
                   }) /
         kLaunches;
}

}  // namespace

StepMeasurement measure_step(const Experiment& experiment, int process, c10::Device device, int64_t steps) {
  const ExperimentSpec& spec = experiment.spec;
  prepare_device(device);
  use_own_cores();
  const std::unique_ptr<Communicator> comm =
      fake_communicator(process, experiment.schedule.placement.processes, device);
  Engine engine(experiment.plan, experiment.schedule, spec.optimizer, *comm);
  engine.initialize(static_cast<uint64_t>(spec.seed));
  TrainStep train_step(experiment, engine, *comm);
  const auto run = [&](int64_t step) {
    train_step.run(step, spec.optimizer.lr, [&] { return random_batch(spec, device); });
  };

  run(0);
  comm->barrier();
  reset_peak();
  std::vector<double> times_ms;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto began = std::chrono::steady_clock::now();
    run(step);
    comm->barrier();
    times_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  std::nth_element(times_ms.begin(), times_ms.begin() + steps / 2, times_ms.end());
  return {.process = process,
          .device = device_name(device),
          .peak = allocated_at_peak(),
          .step_ms = times_ms[static_cast<size_t>(steps / 2)],
          .steps = steps};
}

DeviceProfile measure_device(c10::Device device, Precision precision) {
  prepare_device(device);
  const at::TensorOptions options = at::TensorOptions(scalar_type(compute_type(precision))).device(device);
  const double memory_bytes_per_s = memory_rate(device);
  return {.name = device_name(device),
          .rates = RatesFrom::kThisDevice,
          .flops_per_s = product_rate(options),
          .tile_side = device.is_cuda() ? kGpuTileSide : 1,
          .tiles_at_once = multiprocessors(device),
          .launch_s = launch_s(options),
          .copies_together = device.is_cuda(),
          .memory_bytes_per_s = memory_bytes_per_s,
          .inside_bytes_per_s = memory_bytes_per_s / 2,
          .between_bytes_per_s = memory_bytes_per_s / 2,
          .memory_bytes = device_memory_bytes(device),
          .allowance_bytes = 0};
}

}  // namespace sdp
