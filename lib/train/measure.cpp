#include "train/measure.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "comm/alone.h"
#include "engine/engine.h"
#include "model/tensor_source.h"
#include "train/device.h"
#include "train/train_step.h"

namespace sdp {
namespace {

TensorBatch random_batch(const ExperimentSpec& spec, at::Device device) {
  const int64_t samples = spec.train.batch_size_per_worker;
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(device);
  if (spec.data.name == DatasetName::kTokens) {
    const std::vector<int64_t> shape = {samples, spec.data.sequence_length};
    return {.input = at::randint(*spec.model.vocab_size, shape, integers),
            .labels = at::randint(*spec.model.vocab_size, shape, integers)};
  }
  const int64_t side = *spec.model.image_size;
  const auto type = scalar_type(compute_type(spec.train.precision));
  return {.input = at::randn({samples, 3, side, side}, at::TensorOptions(type).device(device)),
          .labels = at::randint(spec.model.num_classes, {samples}, integers)};
}

}  // namespace

StepMeasurement measure_step(const Experiment& experiment, int process, c10::Device device, int64_t steps) {
  const ExperimentSpec& spec = experiment.spec;
  prepare_device(device);
  use_own_cores();
  const std::unique_ptr<Communicator> comm =
      communicator_alone(process, experiment.schedule.placement.processes, device);
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
  use_own_cores();
  constexpr int64_t kSide = 2048;
  constexpr int kLaunches = 256;
  constexpr int kTimes = 3;
  const at::TensorOptions options = at::TensorOptions(scalar_type(compute_type(precision))).device(device);
  const at::Tensor a = at::ones({kSide, kSide}, options);
  at::Tensor product = at::empty({kSide, kSide}, options);
  // Seconds of the fastest of a few runs, the first of which only warms up.
  const auto fastest_s = [&](const auto& run) {
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
  };
  const double product_s = fastest_s([&] { at::mm_out(product, a, a); });
  at::Tensor one = at::zeros({1}, options);
  const double launches_s = fastest_s([&] {
    for (int i = 0; i < kLaunches; ++i)
      one.add_(1);
  });
  const at::Tensor source = at::ones({int64_t{32} << 20}, options.dtype(at::kFloat));
  at::Tensor target = at::empty_like(source);
  const double copy_s = fastest_s([&] { target.copy_(source); });
  const double memory_bytes_per_s = 2 * static_cast<double>(source.nbytes()) / copy_s;  // read and written
  return {.name = device_name(device),
          .measured = true,
          .flops_per_s = 2.0 * kSide * kSide * kSide / product_s,
          .launch_s = launches_s / kLaunches,
          .copies_together = device.is_cuda(),
          .memory_bytes_per_s = memory_bytes_per_s,
          .inside_bytes_per_s = memory_bytes_per_s / 2,
          .between_bytes_per_s = memory_bytes_per_s / 2,
          .memory_bytes = device_memory_bytes(device),
          .allowance_bytes = 0};
}

}  // namespace sdp
