#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "commands.h"
#include "cost/figures.h"
#include "cost/make_experiment.h"
#include "cost/peak.h"
#include "cost/plan_text.h"
#include "cost/step_limits.h"
#include "cost/step_time.h"
#include "doctor/measure.h"
#include "engine/device.h"
#include "experiment/load.h"
#include "experiment/print.h"
#include "experiment/resume.h"
#include "inputs.h"
#include "io/file.h"
#include "run/checkpoint_reader.h"
#include "run/checkpoint_store.h"
#include "run/resumed_run.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// The value of an option, if it is above 0 and at most `most`.
double checked(const char* option, double value, const char* unit, double most) {
  if (value > 0 && value <= most) return value;
  throw UsageError(fmt::format("{} {}: expected {} above 0 and at most {:.0f}", option, value, unit, most));
}

/// The device with the memory and the links given by the user.
DeviceProfile adjusted(DeviceProfile device, const PlanArguments& arguments, const NodeMap& nodes) {
  if (arguments.memory_gib)
    device.memory_bytes =
        static_cast<int64_t>(checked("--memory", *arguments.memory_gib, "GiB", 1e6) * (int64_t{1} << 30));
  if (arguments.bandwidth_gbit) {
    device.between_bytes_per_s = checked("--bandwidth", *arguments.bandwidth_gbit, "Gbit/s", 1e6) * 1e9 / 8;
    if (nodes.nodes() == 1) device.inside_bytes_per_s = device.between_bytes_per_s;
  }
  if (arguments.latency_us)
    device.latency_s = checked("--latency", *arguments.latency_us, "microseconds", 1e6) / 1e6;
  return device;
}

/// The process of the given worker (its first replica), or the one with the largest peak.
int process_to_measure(const Experiment& experiment, const StepMemory& memory,
                       const std::optional<int>& worker) {
  const SlotMap& slot_map = experiment.exchanges.slot_map;
  if (worker && (*worker < 0 || *worker >= slot_map.workers))
    throw UsageError(fmt::format("--worker {}: expected a worker in 0..{}", *worker, slot_map.workers - 1));
  int largest = 0;
  int64_t largest_bytes = 0;
  for (int process = 0; process < slot_map.processes; ++process) {
    const std::vector<Slot> slots = slot_map.slots_of(process);
    if (worker && std::any_of(slots.begin(), slots.end(), [&](Slot slot) { return slot.worker == *worker; }))
      return process;
    const int64_t batch_size = experiment.spec.train.batch_size_per_worker;
    const int64_t bytes = memory.maxima(cost_of(experiment, process), process, batch_size).peak.total();
    if (bytes > largest_bytes) {
      largest = process;
      largest_bytes = bytes;
    }
  }
  return largest;
}

DeviceProfile this_machine(c10::Device device, Precision precision) {
  use_own_cores();
  return measure_device(device, precision);
}

std::string measured_text(const Experiment& experiment, const PlanArguments& arguments) {
  const TrainSpec& train = experiment.spec.train;
  const c10::Device here = choose_device(train.device, Ranks{});
  const DeviceProfile device = arguments.device ? device_profile(*arguments.device, train.precision)
                                                : this_machine(here, train.precision);
  StepCaptures captures(step_shape(experiment.spec, device.is_gpu), experiment.plan);
  const StepMemory memory(experiment.spec, experiment.exchanges, captures,
                          device.convolution_workspace_bytes);
  const int process = process_to_measure(experiment, memory, arguments.worker);
  const StepMeasurement measured = measure_step(experiment, process, here);
  const Cost cost = cost_of(experiment, process);
  const int64_t batch_size = train.batch_size_per_worker;
  ComputeTimes times(captures, device);
  const StepFigures planned{
      .peak = memory.maxima(cost, process, batch_size).peak,
      .library_workspace_bytes = device.library_workspace_bytes,
      .step_ms = 1e3 * times.step(experiment.exchanges, cost, process, batch_size).step_s()};
  return arguments.json ? measurement_json(measured, planned)
                        : describe_measurement(experiment, measured, planned);
}

/// The checkpoint that a run of this spec would go on from, without an error if it may. Warnings are printed.
struct ResumedPlan {
  CheckpointReader reader;
  ExperimentSpec saved;
  std::optional<std::filesystem::path> owners;

  ResumedPlan(const std::filesystem::path& run_dir, const ExperimentSpec& now)
      : reader(run_dir, std::nullopt, /*verify_hashes=*/false) {
    const CheckpointStore store(run_dir);
    const int64_t step = reader.manifest().step;
    saved = read_saved_run(store, step).spec;
    print_warnings(check_resumable(saved, now));
    owners = owners_to_keep(store, step, now);
  }

  std::string text() const {
    const Manifest& manifest = reader.manifest();
    return fmt::format(
        "From the checkpoint of step {} ({} workers x {} replicas, coverage {}, {} processes):\n\n",
        manifest.step, manifest.workers, manifest.replicas, saved.subnetwork.coverage.text,
        manifest.processes);
  }
};

/// plan.json in a folder, and the lab's pictures of it.
int draw_plan(const PlanFigures& figures, const std::filesystem::path& folder) {
  make_folder(folder);
  write_file_atomically(folder / "plan.json", to_json(figures));
  return external_command("draw", {folder.string()});
}

int show_plan(const Experiment& experiment, const PlanArguments& arguments) {
  const DeviceProfile device =
      device_profile(arguments.device.value_or(kForecastDevice), experiment.spec.train.precision);
  const PlanFigures figures = figures_of(experiment, adjusted(device, arguments, experiment.nodes));
  std::fputs((arguments.json ? to_json(figures) : describe_plan(figures, experiment.spec)).c_str(), stdout);
  return arguments.out.empty() ? 0 : draw_plan(figures, arguments.out);
}

}  // namespace

int plan_command(const PlanArguments& arguments) {
  if (arguments.worker && !arguments.measure)
    throw UsageError("--worker selects the step to measure. Add --measure, or leave --worker out.");
  if (arguments.spec.configs.empty() && arguments.run_dir.empty())
    throw UsageError("plan: expected --config, or --run for a run that is to go on.");
  const LoadedSpec loaded =
      arguments.run_dir.empty()
          ? load_spec(arguments.spec.configs, arguments.spec.overrides, NamedFiles::kNotNeeded)
          : load_spec_of_run(arguments.run_dir, arguments.spec.overrides, NamedFiles::kNotNeeded);
  print_warnings(loaded.warnings);
  std::optional<ResumedPlan> resumed;
  if (!arguments.run_dir.empty()) resumed.emplace(arguments.run_dir, loaded.spec);
  const SubnetworkSpec& subnetwork = loaded.spec.subnetwork;
  const Experiment experiment =
      make_experiment(loaded.spec, arguments.processes.value_or(subnetwork.workers * subnetwork.replicas),
                      resumed ? resumed->owners : std::nullopt, arguments.processes_per_node);
  if (arguments.measure) {
    std::fputs(measured_text(experiment, arguments).c_str(), stdout);
    return 0;
  }
  if (resumed && !arguments.json) std::fputs(resumed->text().c_str(), stdout);
  return show_plan(experiment, arguments);
}

int spec_command(bool schema, const std::map<std::string, std::string>& chosen) {
  std::fputs((schema ? json_schema() + "\n" : describe_fields(chosen)).c_str(), stdout);
  return 0;
}

}  // namespace sdp
