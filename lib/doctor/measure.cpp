#include "doctor/measure.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/device.h"
#include "engine/engines.h"
#include "engine/train_step.h"
#include "layers/tensors.h"
#include "process/stopwatch.h"
#include "spec/json_fields.h"
#include "spec/table.h"
#include "spec/units.h"

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
  return {.input = at::randn({samples, spec.model.image_channels(), side, side},
                             at::TensorOptions(type).device(device)),
          .labels = at::randint(spec.model.num_classes(), {samples}, integers)};
}

/// Values of the size that training starts from, drawn on the device: the values of a run are drawn on the
/// CPU, which takes seconds for a large model.
at::Tensor random_values(const ParameterLayout& parameter, at::Device device) {
  at::Tensor values = at::empty(parameter.shape, at::TensorOptions(at::kFloat).device(device));
  return parameter.init.kind == Initializer::Kind::kConstant ? values.fill_(parameter.init.scale)
                                                             : values.normal_(0, parameter.init.scale);
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

/// The largest workspace of cuDNN in both passes of a layer like those of ResNet-18; 0 on a CPU, where plans
/// know what oneDNN takes.
int64_t convolution_workspace_bytes(const at::TensorOptions& options) {
  if (options.device().is_cpu()) return 0;
  const at::Tensor x = at::randn({16, 64, 32, 32}, options), w = at::randn({64, 64, 3, 3}, options);
  const auto freed_bytes = [](auto run) {
    reset_peak();
    [[maybe_unused]] const auto results = run();
    return allocated_at_peak().total() - allocated_now().total();
  };
  const int64_t forward_bytes = freed_bytes([&] { return at::conv2d(x, w, /*bias=*/{}, 1, 1); });
  const int64_t backward_bytes = freed_bytes([&] {
    return at::convolution_backward(x, x, w, /*bias_sizes=*/c10::nullopt, {1, 1}, {1, 1}, {1, 1},
                                    /*transposed=*/false, {0, 0}, /*groups=*/1, {true, true, false});
  });
  return std::max(forward_bytes, backward_bytes);
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

/// Predicted and measured bytes of one kind of memory.
struct KindRow {
  const char* key;
  const char* name;
  int64_t predicted_bytes;
  int64_t measured_bytes;
};

std::vector<KindRow> kind_rows(const StepMeasurement& measured, const StepFigures& planned) {
  std::vector<KindRow> rows;
  for (const MemoryKindInfo& kind : kMemoryKinds)
    rows.push_back({kind.name, kind.name, planned.peak.*kind.bytes, measured.peak.*kind.bytes});
  rows.push_back({"peak", "peak", planned.peak.total(), measured.peak.total()});
  rows.push_back({"library_workspace", "library workspace, in addition", planned.library_workspace_bytes,
                  measured.library_workspace_bytes});
  return rows;
}

}  // namespace

StepMeasurement measure_step(const Experiment& experiment, int process, c10::Device device) {
  constexpr size_t kFewestSteps = 3;
  constexpr double kLongEnoughSeconds = 1;
  const ExperimentSpec& spec = experiment.spec;
  prepare_device(device);
  use_own_cores();
  const std::unique_ptr<Communicator> comm =
      fake_communicator(process, experiment.exchanges.slot_map.processes, device);
  const OwnedEngines owned(experiment, *comm);
  const Engines engines = owned.engines();
  engines.set_values(
      [&](int parameter) { return random_values(experiment.plan.layout.parameters[parameter], device); });
  TrainStep train_step(experiment, engines, *comm);
  const auto run = [&](int64_t step) {
    train_step.run(step, spec.optimizer.lr(), [&] { return random_batch(spec, device); });
    if (OuterExchange* const outer = engines.outer()) outer->run();
  };

  run(0);
  comm->barrier();
  reset_peak();
  std::vector<double> times_s;
  const Stopwatch since_warm_up;
  while (times_s.size() < kFewestSteps || since_warm_up.seconds() < kLongEnoughSeconds) {
    const Stopwatch of_step;
    run(static_cast<int64_t>(times_s.size()) + 1);
    comm->barrier();
    times_s.push_back(of_step.seconds());
  }
  const auto middle = times_s.begin() + static_cast<std::ptrdiff_t>(times_s.size() / 2);
  std::nth_element(times_s.begin(), middle, times_s.end());
  return {{.peak = allocated_at_peak(),
           .library_workspace_bytes = library_workspace_bytes(device),
           .step_ms = 1e3 * *middle},
          process,
          device_name(device),
          static_cast<int64_t>(times_s.size())};
}

DeviceProfile measure_device(c10::Device device, Precision precision) {
  prepare_device(device);
  const at::TensorOptions options = at::TensorOptions(scalar_type(compute_type(precision))).device(device);
  const double memory_bytes_per_s = memory_rate(device);
  return {.name = device_name(device),
          .rates = RatesFrom::kThisDevice,
          .flops_per_s = product_rate(options),
          .peak_flops_per_s = data_sheet_flops_per_s(gpu_name(device), precision).value_or(0),
          .tile_side = device.is_cuda() ? kGpuTileSide : 1,
          .tiles_at_once = multiprocessors(device),
          .launch_s = launch_s(options),
          .is_gpu = device.is_cuda(),
          .memory_bytes_per_s = memory_bytes_per_s,
          .inside_bytes_per_s = memory_bytes_per_s / 2,
          .between_bytes_per_s = memory_bytes_per_s / 2,
          .memory_bytes = device_memory_bytes(device),
          .allowance_bytes = 0,
          .library_workspace_bytes = library_workspace_bytes(device),
          .convolution_workspace_bytes = convolution_workspace_bytes(options)};
}

std::string describe_measurement(const Experiment& experiment, const StepMeasurement& measured,
                                 const StepFigures& planned) {
  std::string text = fmt::format(
      "{}: process {} of {} without the others, median of {} steps on {}: measured {}, predicted {} ({:.2f} "
      "of measured)\n",
      experiment.plan.layout.name, measured.process, experiment.exchanges.slot_map.processes, measured.steps,
      measured.device, format_milliseconds(measured.step_ms), format_milliseconds(planned.step_ms),
      planned.step_ms / measured.step_ms);
  TextTable table({"tensors at the peak", "predicted", "measured", "predicted/measured"});
  for (const KindRow& row : kind_rows(measured, planned))
    table.add_row({row.name, format_bytes(row.predicted_bytes), format_bytes(row.measured_bytes),
                   row.measured_bytes > 0 ? fmt::format("{:.3f}", static_cast<double>(row.predicted_bytes) /
                                                                      static_cast<double>(row.measured_bytes))
                                          : "-"});
  return text + table.str();
}

std::string measurement_json(const StepMeasurement& measured, const StepFigures& planned) {
  nlohmann::ordered_json json = {{"process", measured.process},
                                 {"device", measured.device},
                                 {"steps", measured.steps},
                                 {"predicted_step_ms", planned.step_ms},
                                 {"step_ms", measured.step_ms}};
  for (const KindRow& row : kind_rows(measured, planned)) {
    json["predicted_bytes"][row.key] = row.predicted_bytes;
    json["measured_bytes"][row.key] = row.measured_bytes;
  }
  return json_text(json, 2) + "\n";
}

}  // namespace sdp
