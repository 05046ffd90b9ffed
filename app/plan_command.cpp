#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "commands.h"
#include "device/device.h"
#include "experiment/spec/load.h"
#include "experiment/spec/print.h"
#include "forecast/forecast.h"
#include "forecast/profile_file.h"
#include "forecast/step_time.h"
#include "measure/measurement_text.h"
#include "measure/operation_timer.h"
#include "plan/figures.h"
#include "plan/plan_text.h"
#include "print_warnings.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// A machine, and the time of operations on it.
struct Machine {
  DeviceProfile device;
  OperationTimes times;
};

Machine this_machine(const TrainSpec& train) {
  const at::Device device = choose_device(train.device, Ranks{});
  use_own_cores();
  return {measure_device(device, train.precision), measured_times(device, train.precision)};
}

Machine machine_of(const PlanArguments& arguments, const TrainSpec& train) {
  const std::string name = arguments.device.value_or(arguments.measure ? "measure" : "h100");
  if (name == "measure") return this_machine(train);
  const bool is_file = std::filesystem::path(name).extension() == ".json";
  const DeviceProfile device =
      is_file ? read_profile(name, train.precision) : device_profile(name, train.precision);
  return {device, estimated_times(device, train.precision)};
}

/// The device with the memory given by the user.
DeviceProfile with_memory(DeviceProfile device, const std::optional<double>& gigabytes) {
  constexpr double kMostGigabytes = 1e6;
  if (!gigabytes) return device;
  if (!(*gigabytes > 0 && *gigabytes <= kMostGigabytes))
    throw UsageError(fmt::format("--memory {}: expected gigabytes above 0 and at most {:.0f}", *gigabytes,
                                 kMostGigabytes));
  device.memory_bytes = static_cast<int64_t>(*gigabytes * 1e9);
  return device;
}

/// The process of the given worker (its first replica), or the one with the largest peak.
int process_to_measure(const Experiment& experiment, const StepMemory& memory,
                       const std::optional<int>& worker) {
  const Placement& placement = experiment.schedule.placement;
  if (worker && (*worker < 0 || *worker >= placement.workers))
    throw UsageError(fmt::format("--worker {}: expected a worker in 0..{}", *worker, placement.workers - 1));
  int largest = 0;
  int64_t largest_bytes = 0;
  for (int process = 0; process < placement.processes; ++process) {
    const std::vector<Slot> slots = placement.slots_of(process);
    if (worker && std::any_of(slots.begin(), slots.end(), [&](Slot slot) { return slot.worker == *worker; }))
      return process;
    const int64_t bytes = memory.peak(cost_of(experiment, process), process).total();
    if (bytes > largest_bytes) {
      largest = process;
      largest_bytes = bytes;
    }
  }
  return largest;
}

std::string measured_text(const Experiment& experiment, const PlanArguments& arguments) {
  const TrainSpec& train = experiment.spec.train;
  const Machine machine = machine_of(arguments, train);
  const StepMemory memory(experiment.plan, experiment.schedule, train,
                          machine.device.convolution_workspace_bytes);
  const int process = process_to_measure(experiment, memory, arguments.worker);
  const StepMeasurement measured = measure_step(experiment, process, choose_device(train.device, Ranks{}));
  const Cost cost = cost_of(experiment, process);
  const StepSeconds planned =
      step_seconds(experiment.plan, experiment.schedule, train, cost, process, machine.times, machine.device);
  const StepPrediction predicted{.peak = memory.peak(cost, process),
                                 .library_workspace_bytes = machine.device.library_workspace_bytes,
                                 .step_ms = 1e3 * planned.step_s()};
  return arguments.json ? measurement_json(measured, predicted)
                        : describe_measurement(experiment, measured, predicted);
}

std::string plan_text(const Experiment& experiment, const PlanArguments& arguments) {
  const Machine machine = machine_of(arguments, experiment.spec.train);
  const PlanFigures figures =
      figures_of(experiment, with_memory(machine.device, arguments.memory_gigabytes), machine.times);
  return arguments.json ? to_json(figures) : describe_plan(figures, experiment.spec);
}

}  // namespace

int plan_command(const PlanArguments& arguments) {
  if (arguments.worker && !arguments.measure)
    throw UsageError("--worker selects the step to measure. Add --measure, or leave --worker out.");
  const LoadedSpec loaded =
      load_spec(arguments.spec.configs, arguments.spec.overrides, NamedFiles::kNotNeeded);
  print_warnings(loaded.warnings);
  const SubnetworkSpec& subnetwork = loaded.spec.subnetwork;
  const Experiment experiment =
      make_experiment(loaded.spec, arguments.processes.value_or(subnetwork.workers * subnetwork.replicas),
                      /*saved_plan=*/std::nullopt, arguments.processes_per_node);
  const std::string text =
      arguments.measure ? measured_text(experiment, arguments) : plan_text(experiment, arguments);
  std::fputs(text.c_str(), stdout);
  return 0;
}

int spec_command(bool schema, const ChosenNames& chosen) {
  std::fputs((schema ? json_schema() + "\n" : describe_fields(chosen)).c_str(), stdout);
  return 0;
}

}  // namespace sdp
