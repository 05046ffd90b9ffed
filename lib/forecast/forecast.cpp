#include "forecast/forecast.h"

#include <algorithm>

#include "experiment/step_shape.h"
#include "forecast/accounting.h"
#include "forecast/collectives.h"
#include "forecast/fsdp.h"
#include "forecast/step_time.h"

namespace sdp {
namespace {

/// The collectives that a method uses.
enum class Collectives {
  kEngine,  ///< every process exchanges shares with every other
  kRings,   ///< NCCL's collectives
};

/// The inputs that all methods have in common.
struct Machine {
  const DeviceProfile& device;
  const NodeMap& nodes;
  const CallTimes& times;
};

/// A method that the engine implements.
struct EngineMethod {
  std::string name;
  StepCaptures& captures;
  Schedule schedule;
  ExperimentSpec spec;
  Collectives collectives = Collectives::kRings;

  const SubnetPlan& plan() const { return captures.plan(); }
  int64_t batch_size() const { return spec.train.batch_size_per_worker; }
  StepMemory memory_on(const DeviceProfile& device) const {
    return {schedule, captures, device.convolution_workspace_bytes};
  }

  /// Number of processes to examine: 1 if all have the full model, as they are then alike.
  int different_processes() const {
    return plan().owners_per_unit == plan().workers ? 1 : schedule.placement.processes;
  }
};

EngineMethod dense_method(const std::string& name, StepCaptures& dense, const Placement& placement,
                          ExperimentSpec spec, bool shard, bool release, ReduceEvery reduce_every) {
  spec.optimizer.shard = shard;
  spec.train.release_gradients = release;
  spec.train.reduce_every = reduce_every;
  spec.train.checkpoint_activations = false;
  Schedule schedule = make_schedule(dense.plan(), placement, schedule_options(spec, dense.plan().layout));
  return {name, dense, std::move(schedule), std::move(spec)};
}

/// Micro-batches per step that a process computes, over all its slots.
double micro_batches(const EngineMethod& method) {
  return static_cast<double>(method.spec.train.accumulate_steps *
                             method.schedule.placement.slots_per_process());
}

/// `captures`: of the same plan, with checkpointing.
EngineMethod with_checkpointing(const EngineMethod& method, StepCaptures& captures) {
  ExperimentSpec spec = method.spec;
  spec.train.checkpoint_activations = true;
  return {method.name + ", checkpointing", captures, method.schedule, std::move(spec), method.collectives};
}

StepCaptures checkpointing_captures(const StepCaptures& captures) {
  StepShape step = captures.step();
  step.checkpoint_activations = true;
  return {std::move(step), captures.plan()};
}

/// The same plan with the other setting of train.reduce_every.
EngineMethod reduced_otherwise(EngineMethod method) {
  const bool was_step = method.spec.train.reduce_every == ReduceEvery::kStep;
  method.name += was_step ? ", reduced per micro-batch" : ", reduced per step";
  method.spec.train.reduce_every = was_step ? ReduceEvery::kMicroBatch : ReduceEvery::kStep;
  method.schedule = make_schedule(method.plan(), method.schedule.placement,
                                  schedule_options(method.spec, method.plan().layout));
  return method;
}

/// Memory, traffic and time of a process's step.
struct ProcessStep {
  MemoryByKind peak;
  int64_t most_activations = 0;
  int64_t bytes_sent = 0;
  StepSeconds seconds;
};

/// Adds the engine's exchange of a process, which goes directly to processes of its node and through its own
/// adapter to other nodes. `between`: bytes that it sends to other nodes.
void add_engine_exchange(StepSeconds& seconds, const Cost& cost, int64_t between, const Schedule& schedule,
                         const DeviceProfile& device) {
  const auto sent = static_cast<double>(cost.bytes_sent_per_step());
  const double outside = sent > 0 ? static_cast<double>(between) / sent : 0;
  const double s_per_byte = (1 - outside) / device.inside_bytes_per_s + outside / device.between_bytes_per_s;
  seconds.exchange_backward_s = static_cast<double>(cost.reduce_bytes_per_step) * s_per_byte;
  // Without `shard`, the averaged gradients are gathered before the update.
  (schedule.options.shard ? seconds.exchange_forward_s : seconds.exchange_after_s) =
      static_cast<double>(cost.gather_bytes_per_step) * s_per_byte;
}

/// Adds an all-reduce, or with `shard` a reduce-scatter and an all-gather.
void add_rings(StepSeconds& seconds, const Cost& cost, const Schedule& schedule, const Machine& machine) {
  const bool shard = schedule.options.shard;
  const int64_t backward = shard ? cost.reduce_bytes_per_step : cost.bytes_sent_per_step();
  seconds.exchange_backward_s = ring_s(backward, machine.nodes, machine.device);
  if (shard) seconds.exchange_forward_s = ring_s(cost.gather_bytes_per_step, machine.nodes, machine.device);
}

/// The step of each process. `between`: bytes per step that each process sends to other nodes in the engine's
/// exchange.
std::vector<ProcessStep> steps_of(const EngineMethod& method, const std::vector<Cost>& costs,
                                  const std::vector<int64_t>& between, const Machine& machine) {
  const StepMemory memory = method.memory_on(machine.device);
  ComputeTimes times(method.captures, machine.times);
  std::vector<ProcessStep> steps;
  for (int process = 0; process < static_cast<int>(costs.size()); ++process) {
    const Cost& cost = costs[process];
    const StepMaxima maxima = memory.maxima(cost, process, method.batch_size());
    ProcessStep step{.peak = maxima.peak,
                     .most_activations = maxima.activations,
                     .bytes_sent = cost.bytes_sent_per_step(),
                     .seconds = step_seconds(method.plan(), method.schedule, method.spec.train, cost, process,
                                             times, machine.device)};
    if (method.collectives == Collectives::kEngine) {
      add_engine_exchange(step.seconds, cost, between[process], method.schedule, machine.device);
    } else {
      // Collectives of whole buckets overlap the backward pass regardless of the engine's settings.
      step.seconds.alongside.backward_s = step.seconds.compute.backward_s / micro_batches(method) *
                                          static_cast<double>(method.schedule.reductions_per_step());
      add_rings(step.seconds, cost, method.schedule, machine);
    }
    steps.push_back(step);
  }
  return steps;
}

/// Includes a process's times. Each time of the forecast is that of the process that is slowest in it.
void add_times(StepForecast& forecast, const ProcessStep& step) {
  const auto keep_largest = [](double& of_method, double seconds) {
    of_method = std::max(of_method, 1e3 * seconds);
  };
  keep_largest(forecast.compute_ms, step.seconds.compute.total_s());
  keep_largest(forecast.exchange_ms, step.seconds.exchange_s());
  keep_largest(forecast.waiting_ms, step.seconds.waiting_s());
  if (1e3 * step.seconds.step_s() > forecast.step_ms) forecast.slowest = step.seconds;
  keep_largest(forecast.step_ms, step.seconds.step_s());
  forecast.bytes_sent = std::max(forecast.bytes_sent, step.bytes_sent);
}

/// A forecast without its largest batch.
StepForecast forecast_steps(const std::string& name, double flops_share,
                            const std::vector<ProcessStep>& steps, const DeviceProfile& device) {
  const auto largest = std::max_element(
      steps.begin(), steps.end(),
      [](const ProcessStep& a, const ProcessStep& b) { return a.peak.total() < b.peak.total(); });
  StepForecast forecast{.name = name,
                        .peak = largest->peak,
                        .peak_process = static_cast<int>(largest - steps.begin()),
                        .most_activations = largest->most_activations,
                        .flops_share = flops_share,
                        .fits = largest->peak.total() <= device.tensor_bytes()};
  for (const ProcessStep& step : steps)
    add_times(forecast, step);
  return forecast;
}

/// Bytes per step that each process sends to other nodes.
std::vector<int64_t> between_nodes(const Schedule& schedule, const NodeMap& nodes) {
  return nodes.nodes() > 1 ? sent_between_nodes(schedule, nodes)
                           : std::vector<int64_t>(nodes.node_of.size(), 0);
}

/// Costs of the processes to examine.
std::vector<Cost> costs_of(const EngineMethod& method) {
  std::vector<Cost> costs;
  for (int process = 0; process < method.different_processes(); ++process)
    costs.push_back(cost_of(method.plan(), method.schedule, method.spec.optimizer, process));
  return costs;
}

/// The forecast of a method. `steps`: from steps_of(method, costs, ..).
StepForecast forecast_engine(const EngineMethod& method, const std::vector<Cost>& costs,
                             const std::vector<ProcessStep>& steps, const DeviceProfile& device) {
  StepForecast forecast = forecast_steps(method.name, flops_share(method.plan()), steps, device);
  forecast.coverage = method.plan().coverage();
  forecast.checkpoints = method.spec.train.checkpoint_activations;
  forecast.largest_batch = method.memory_on(device).largest_batch(
      costs[forecast.peak_process], forecast.peak_process, device.tensor_bytes());
  return forecast;
}

/// The forecast of fully sharded data parallelism. `ddp`: data parallelism, with or without checkpointing.
StepForecast forecast_fsdp(const EngineMethod& ddp, const Machine& machine) {
  const Placement& placement = ddp.schedule.placement;
  const DeviceProfile& device = machine.device;
  const FsdpBytes bytes = fsdp_bytes(ddp.plan().layout, ddp.spec, placement.processes);
  const Cost cost = cost_of(ddp.plan(), ddp.schedule, ddp.spec.optimizer, 0);
  const StepMemory memory = ddp.memory_on(device);
  const auto peak_at = [&](int64_t batch_size) {
    return MemoryByKind{.weights = bytes.weights + bytes.gathered_weights,
                        .gradients = bytes.gradients + bytes.unit_gradients,
                        .optimizer = bytes.optimizer,
                        .activations = memory.maxima(cost, 0, batch_size).activations,
                        .buckets = bytes.reduce_buffer};
  };
  const auto times = static_cast<int64_t>(micro_batches(ddp));
  const int64_t forward = times * bytes.gather_sent;
  const int64_t backward = times * (bytes.gather_sent + bytes.reduce_sent);
  const MemoryByKind peak = peak_at(ddp.spec.train.batch_size_per_worker);
  ProcessStep step{
      .peak = peak, .most_activations = peak.activations, .bytes_sent = forward + backward, .seconds = {}};
  ComputeTimes compute_times(ddp.captures, machine.times);
  step.seconds = step_seconds(ddp.plan(), ddp.schedule, ddp.spec.train, cost, 0, compute_times, device);
  // Shares are updated, gathered values are copied out, and gradients are packed to be reduced.
  const int64_t touched = 2 * (bytes.optimizer + bytes.gradients) + 2 * (forward + backward);
  step.seconds.update_s = static_cast<double>(touched) / device.memory_bytes_per_s;
  step.seconds.alongside = step.seconds.compute;
  step.seconds.exchange_forward_s = ring_s(forward, machine.nodes, device);
  step.seconds.exchange_backward_s = ring_s(backward, machine.nodes, device);
  const std::string name =
      ddp.spec.train.checkpoint_activations ? "ZeRO-3/FSDP, checkpointing" : "ZeRO-3/FSDP";
  StepForecast forecast = forecast_steps(name, /*flops_share=*/1, {step}, device);
  forecast.in_this_program = false;
  forecast.checkpoints = ddp.spec.train.checkpoint_activations;
  forecast.largest_batch =
      largest_batch([&](int64_t batch) { return peak_at(batch).total() <= device.tensor_bytes(); });
  return forecast;
}

/// Samples per step, over all workers and replicas.
int64_t global_batch_size(const ExperimentSpec& spec, const Placement& placement) {
  return spec.train.batch_size_per_worker * spec.train.accumulate_steps * placement.slots();
}

RunForecast run_forecast(const Experiment& experiment, const StepForecast& plan,
                         const DeviceProfile& device) {
  const ExperimentSpec& spec = experiment.spec;
  const Placement& placement = experiment.schedule.placement;
  RunForecast run{.batch_size_per_worker = spec.train.batch_size_per_worker,
                  .accumulate_steps = spec.train.accumulate_steps,
                  .global_batch_samples = global_batch_size(spec, placement),
                  .tokens_per_sample = spec.data.is_of_tokens() ? spec.data.sequence_length() : 0};
  const double step_s = plan.step_ms / 1e3;
  run.samples_per_s = static_cast<double>(run.global_batch_samples) / step_s;
  if (device.peak_flops_per_s > 0)
    run.utilization = run.samples_per_s * plan.flops_share * experiment.plan.dense_flops() /
                      (placement.processes * device.peak_flops_per_s);
  if (spec.train.max_steps) run.hours = static_cast<double>(*spec.train.max_steps) * step_s / 3600;
  return run;
}

/// The experiment's plan with the engine's exchange, and the costs of its processes to examine.
EngineMethod own_method(const Experiment& experiment, StepCaptures& captures) {
  return {"this plan", captures, experiment.schedule, experiment.spec, Collectives::kEngine};
}

std::vector<Cost> examined(const EngineMethod& method, const std::vector<Cost>& costs) {
  return {costs.begin(), costs.begin() + method.different_processes()};
}

}  // namespace

StepForecast forecast_plan(const Experiment& experiment, const std::vector<Cost>& costs,
                           const DeviceProfile& device, const CallTimes& times) {
  StepCaptures captures(step_shape(experiment.spec, device.is_gpu), experiment.plan);
  const EngineMethod own = own_method(experiment, captures);
  const std::vector<ProcessStep> steps =
      steps_of(own, examined(own, costs), between_nodes(own.schedule, experiment.nodes),
               {device, experiment.nodes, times});
  return forecast_steps(own.name, flops_share(own.plan()), steps, device);
}

Forecast forecast_of(const Experiment& experiment, const std::vector<Cost>& costs,
                     const DeviceProfile& device, const CallTimes& times) {
  const ExperimentSpec& spec = experiment.spec;
  const SubnetPlan& plan = experiment.plan;
  const Schedule& schedule = experiment.schedule;
  const NodeMap& nodes = experiment.nodes;
  const Machine machine{device, nodes, times};
  StepCaptures captures(step_shape(spec, device.is_gpu), plan);
  const EngineMethod own = own_method(experiment, captures);
  const std::vector<Cost> own_costs = examined(own, costs);
  const std::vector<int64_t> own_between = between_nodes(schedule, nodes);
  const std::vector<ProcessStep> own_steps = steps_of(own, own_costs, own_between, machine);
  Forecast forecast{.device = device,
                    .per_process = {},
                    .plan = forecast_engine(own, own_costs, own_steps, device),
                    .run = {},
                    .others = {},
                    .model_parallel = model_parallel_traffic(plan.layout, spec.train.precision,
                                                             global_batch_size(spec, schedule.placement),
                                                             schedule.placement.processes)};
  forecast.run = run_forecast(experiment, forecast.plan, device);
  for (const ProcessStep& step : own_steps)
    forecast.per_process.push_back(step.peak);
  forecast.per_process.resize(static_cast<size_t>(schedule.placement.processes),
                              forecast.per_process.front());

  const auto add = [&](const EngineMethod& method, const std::vector<Cost>& of_method) {
    forecast.others.push_back(
        forecast_engine(method, of_method, steps_of(method, of_method, own_between, machine), device));
  };
  // Whole branches give the fewest units; at full coverage the choice of units makes no difference.
  const SubnetPlan dense = dense_plan(plan, Construction::kBlock);
  ExperimentSpec without_checkpointing = spec;
  without_checkpointing.train.checkpoint_activations = false;
  StepCaptures dense_captures(step_shape(without_checkpointing, device.is_gpu), dense);
  const auto dense_one = [&](const std::string& name, bool shard, bool release, ReduceEvery reduce_every) {
    return dense_method(name, dense_captures, schedule.placement, spec, shard, release, reduce_every);
  };
  const EngineMethod ddp = dense_one("DDP", false, false, ReduceEvery::kStep);
  StepCaptures checkpointing_dense_captures = checkpointing_captures(dense_captures);
  const EngineMethod checkpointing_ddp = with_checkpointing(ddp, checkpointing_dense_captures);
  // ZeRO-2 keeps only a share of the gradients (Rajbhandari et al. 2020), so it reduces after every
  // micro-batch.
  const EngineMethod zero2 = dense_one("ZeRO-2", true, true, ReduceEvery::kMicroBatch);
  add(ddp, costs_of(ddp));
  for (const EngineMethod& zero : {dense_one("ZeRO-1", true, false, ReduceEvery::kStep), zero2})
    add(zero, costs_of(zero));
  forecast.others.push_back(forecast_fsdp(ddp, machine));
  if (spec.train.accumulate_steps > 1)
    for (const EngineMethod& method : {reduced_otherwise(zero2), reduced_otherwise(own)}) {
      const std::vector<Cost> its_costs = costs_of(method);
      const std::vector<ProcessStep> steps =
          steps_of(method, its_costs, between_nodes(method.schedule, nodes), machine);
      forecast.others.push_back(forecast_engine(method, its_costs, steps, device));
    }
  add(checkpointing_ddp, costs_of(checkpointing_ddp));
  forecast.others.push_back(forecast_fsdp(checkpointing_ddp, machine));
  if (plan.coverage() < 1 && !spec.train.checkpoint_activations) {
    // The costs differ only in the saved activations, which the simulation of a step computes itself.
    StepCaptures checkpointing = checkpointing_captures(captures);
    add(with_checkpointing(own, checkpointing), own_costs);
  }
  return forecast;
}

std::vector<StepForecast> Forecast::methods() const {
  std::vector<StepForecast> all = {plan};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace sdp
