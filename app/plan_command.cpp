#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "forecast/forecast.h"
#include "spec/error.h"
#include "spec/load.h"
#include "spec/print.h"
#include "subnet/plan_json.h"
#include "train/device.h"
#include "train/measure.h"
#include "train/plan_text.h"

namespace sdp {
namespace {

constexpr int64_t kMeasuredSteps = 3;

DeviceProfile profile_of(const PlanArguments& arguments, const TrainSpec& train) {
  DeviceProfile device = arguments.device == "measure"
                             ? measure_device(choose_device(train.device, Ranks{}), train.precision)
                             : device_profile(arguments.device, train.precision);
  if (arguments.memory_gigabytes) {
    constexpr double kMostGigabytes = 1e6;
    if (!(*arguments.memory_gigabytes > 0 && *arguments.memory_gigabytes <= kMostGigabytes))
      throw UsageError(fmt::format("--memory {}: expected gigabytes above 0 and at most {:.0f}",
                                   *arguments.memory_gigabytes, kMostGigabytes));
    device.memory_bytes = static_cast<int64_t>(*arguments.memory_gigabytes * 1e9);
  }
  return device;
}

PeakBytes predicted_peak(const Experiment& experiment, const StepMemory& memory, int process) {
  const ExperimentSpec& spec = experiment.spec;
  return memory.peak(cost_of(experiment.plan, experiment.schedule, spec.optimizer, process, spec.train),
                     process);
}

/// The process that has the asked worker (its first replica), or else the one with the largest peak.
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
    const int64_t bytes = predicted_peak(experiment, memory, process).total();
    if (bytes > largest_bytes) {
      largest = process;
      largest_bytes = bytes;
    }
  }
  return largest;
}

std::string measured_text(const Experiment& experiment, const PlanArguments& arguments) {
  const StepMemory memory(experiment.plan, experiment.schedule, experiment.spec.train);
  const int process = process_to_measure(experiment, memory, arguments.worker);
  const at::Device device = choose_device(experiment.spec.train.device, Ranks{});
  use_own_cores();
  const StepMeasurement measured = measure_step(experiment, process, device, kMeasuredSteps);
  const PeakBytes predicted = predicted_peak(experiment, memory, process);
  return arguments.json ? measurement_json(measured, predicted)
                        : describe_measurement(experiment, measured, predicted);
}

std::string plan_text(const Experiment& experiment, const PlanArguments& arguments) {
  const Forecast forecast = forecast_of(experiment.plan, experiment.schedule, experiment.nodes,
                                        experiment.spec, profile_of(arguments, experiment.spec.train));
  if (!arguments.json) return describe_plan(experiment, forecast);
  nlohmann::ordered_json json =
      plan_json(experiment.plan, experiment.schedule, experiment.nodes, experiment.spec);
  add_forecast(json, forecast);
  return json.dump(2) + "\n";
}

}  // namespace

int plan_command(const PlanArguments& arguments) {
  if (arguments.worker && !arguments.measure)
    throw UsageError("--worker says whose step is measured. Add --measure, or leave --worker out.");
  const LoadedSpec loaded =
      load_spec(arguments.spec.configs, arguments.spec.overrides, NamedFiles::kNotNeeded);
  const SubnetworkSpec& subnetwork = loaded.spec.subnetwork;
  const Experiment experiment =
      make_experiment(loaded.spec, arguments.processes.value_or(subnetwork.workers * subnetwork.replicas),
                      /*saved_plan=*/std::nullopt, arguments.processes_per_node);
  const std::string text =
      arguments.measure ? measured_text(experiment, arguments) : plan_text(experiment, arguments);
  std::fputs(text.c_str(), stdout);
  return 0;
}

int spec_command(bool schema) {
  std::fputs((schema ? json_schema() + "\n" : describe_fields()).c_str(), stdout);
  return 0;
}

}  // namespace sdp
