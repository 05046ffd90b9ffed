#include "cost/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cost/layouts.h"
#include "cost/make_experiment.h"
#include "cost/peak.h"
#include "cost/step_limits.h"
#include "experiment/resume.h"

namespace sdp {
namespace {

/// The inputs that all methods have in common.
struct Machine {
  const Experiment& experiment;
  const DeviceProfile& device;
};

/// A plan on its nodes, and its steps without and with activation checkpointing.
struct Division {
  const SubnetPlan& plan;
  const NodeMap& nodes;
  std::array<StepCaptures, 2> captures;
};

Division division_of(const ExperimentSpec& spec, const DeviceProfile& device, const SubnetPlan& plan,
                     const NodeMap& nodes) {
  StepShape step = step_shape(spec, device.is_gpu), recomputing = step;
  step.checkpoint_activations = false;
  recomputing.checkpoint_activations = true;
  return {plan, nodes, {StepCaptures(std::move(step), plan), StepCaptures(std::move(recomputing), plan)}};
}

/// A method that the engine implements.
struct EngineMethod {
  std::string name;
  Division& division;
  ExperimentSpec spec;
  const SlotMap& slot_map;
  /// Of a baseline, which uses NCCL's collectives. Otherwise every process sends shares to every other.
  std::string regime_file = {};
  ExchangePlan exchanges =
      make_exchange_plan(division.plan, slot_map, exchange_options(spec, division.plan.layout));

  const SubnetPlan& plan() const { return division.plan; }
  StepCaptures& captures() const { return division.captures.at(spec.train.checkpoint_activations ? 1 : 0); }
  int64_t batch_size() const { return spec.train.batch_size_per_worker; }
  /// Micro-batches per step that a process computes, over all its slots.
  int64_t micro_batches() const { return spec.train.accumulate_steps * slot_map.slots_per_process(); }
  StepMemory memory_on(const DeviceProfile& device) const {
    return {spec, exchanges, captures(), device.convolution_workspace_bytes};
  }
  bool is_local() const { return spec.exchange.is_local(); }

  /// Number of processes to examine: 1 if all have the full model, as they are then alike.
  int different_processes() const {
    return plan().owners_range().first == plan().workers ? 1 : slot_map.processes;
  }
};

/// The method with other settings of the section `train`.
EngineMethod with(const EngineMethod& method, TrainSpec train) {
  const TrainSpec& own = method.spec.train;
  std::string name = method.name;
  if (train.checkpoint_activations != own.checkpoint_activations)
    name += train.checkpoint_activations ? ", checkpointing" : ", no checkpointing";
  if (train.reduce_every != own.reduce_every)
    name += train.reduce_every == ReduceEvery::kStep ? ", reduced per step" : ", reduced per micro-batch";
  if (train.batch_size_per_worker != own.batch_size_per_worker)
    name += fmt::format(", {} x {} samples", train.accumulate_steps, train.batch_size_per_worker);
  ExperimentSpec spec = method.spec;
  spec.train = train;
  return {std::move(name), method.division, std::move(spec), method.slot_map, method.regime_file};
}

/// `train` without or with checkpointing; with several micro-batches also with the other reduce_every, except
/// where a method keeps all gradients or sends none.
std::vector<TrainSpec> forms_of(const ExperimentSpec& spec, bool checkpoints) {
  TrainSpec train = spec.train;
  train.checkpoint_activations = checkpoints;
  std::vector<TrainSpec> forms = {train};
  if (train.accumulate_steps == 1 || !train.release_gradients || spec.exchange.is_local()) return forms;
  const bool was_step = train.reduce_every == ReduceEvery::kStep;
  train.reduce_every = was_step ? ReduceEvery::kMicroBatch : ReduceEvery::kStep;
  forms.push_back(train);
  return forms;
}

void make_dense(SubnetworkSpec& spec) {
  if (!spec.is_dense()) spec.coverage = Coverage{};
  spec.capacities.clear();
  spec.rules.clear();
}

/// Data parallelism with the full model.
EngineMethod baseline(const std::string& name, const std::string& file, Division& dense,
                      const Experiment& experiment, bool shard, bool release, ReduceEvery reduce_every) {
  ExperimentSpec spec = experiment.spec;
  make_dense(spec.subnetwork);
  spec.subnetwork.construction = Construction::kBlock;  // as the division that is forecast
  spec.exchange = {};
  spec.optimizer.shard = shard;
  spec.train.release_gradients = release;
  spec.train.reduce_every = reduce_every;
  spec.train.checkpoint_activations = false;
  return {name, dense, std::move(spec), experiment.exchanges.slot_map, "configs/regime/" + file};
}

/// Memory, traffic and time of a process's step.
struct ProcessStep {
  Cost cost;
  MemoryByKind peak;
  int64_t most_activations = 0;
  int64_t bytes_sent = 0;
  StepSeconds seconds;
};

/// Adds the engine's exchange of a process, which goes directly to processes of its node and through its own
/// adapter to other nodes. `between`: bytes that it sends to other nodes.
void add_engine_exchange(StepSeconds& seconds, const Cost& cost, int64_t between,
                         const ExchangePlan& exchanges, const DeviceProfile& device) {
  const auto sent = static_cast<double>(cost.bytes_sent_per_step());
  if (sent == 0) return;
  const double outside = static_cast<double>(between) / sent;
  const double s_per_byte = (1 - outside) / device.inside_bytes_per_s + outside / device.between_bytes_per_s;
  const double latency_s = static_cast<double>(exchanges.buckets.size()) * device.latency_s.value_or(0);
  seconds.exchange_backward_s = static_cast<double>(cost.reduce_bytes_per_step) * s_per_byte +
                                static_cast<double>(exchanges.reductions_per_step()) * latency_s;
  // Without `shard`, the averaged gradients are gathered before the update.
  (exchanges.options.shard ? seconds.exchange_forward_s : seconds.exchange_after_s) =
      static_cast<double>(cost.gather_bytes_per_step) * s_per_byte + latency_s;
}

/// Adds an all-reduce, or with `shard` a reduce-scatter and an all-gather.
void add_rings(StepSeconds& seconds, const Cost& cost, const EngineMethod& method,
               const DeviceProfile& device) {
  const bool shard = method.spec.optimizer.shard;
  const auto buckets = static_cast<int64_t>(method.exchanges.buckets.size());
  const int64_t backward = shard ? cost.reduce_bytes_per_step : cost.bytes_sent_per_step();
  const int64_t passes = buckets * (method.exchanges.reductions_per_step() + (shard ? 0 : 1));
  const NodeMap& nodes = method.division.nodes;
  seconds.exchange_backward_s = ring_s(backward, passes, nodes, device);
  if (shard) seconds.exchange_forward_s = ring_s(cost.gather_bytes_per_step, buckets, nodes, device);
}

/// A step's share of the exchange that ends a round, which nothing hides. Between nodes, as if all were sent
/// there.
double local_exchange_s(const EngineMethod& method, const Cost& cost, const DeviceProfile& device) {
  const double bytes_per_s =
      method.division.nodes.nodes() > 1 ? device.between_bytes_per_s : device.inside_bytes_per_s;
  const auto passes = static_cast<double>(2 * method.exchanges.buckets.size());
  return static_cast<double>(cost.bytes_sent_per_step()) / bytes_per_s +
         passes * device.latency_s.value_or(0) / static_cast<double>(*method.spec.exchange.every_steps);
}

/// The step of each process to examine. `costs`: of these processes, or of all.
std::vector<ProcessStep> steps_of(const EngineMethod& method, const std::vector<Cost>& costs,
                                  const Machine& machine) {
  const StepMemory memory = method.memory_on(machine.device);
  ComputeTimes times(method.captures(), machine.device);
  const NodeMap& nodes = method.division.nodes;
  std::vector<int64_t> between(nodes.node_of.size(), 0);
  if (nodes.nodes() > 1) between = sent_between_nodes(method.exchanges, nodes);
  std::vector<ProcessStep> steps;
  for (int process = 0, processes = method.different_processes(); process < processes; ++process) {
    const Cost& cost = costs[static_cast<size_t>(process)];
    const StepMaxima maxima = memory.maxima(cost, process, method.batch_size());
    ProcessStep step{.cost = cost,
                     .peak = maxima.peak,
                     .most_activations = maxima.activations,
                     .bytes_sent = cost.bytes_sent_per_step(),
                     .seconds = times.step(method.exchanges, cost, process, method.batch_size())};
    if (method.is_local()) {
      step.seconds.exchange_after_s = local_exchange_s(method, cost, machine.device);
    } else if (method.regime_file.empty()) {
      add_engine_exchange(step.seconds, cost, between[process], method.exchanges, machine.device);
    } else {
      // Collectives of whole buckets overlap the backward pass regardless of the engine's settings.
      step.seconds.alongside.backward_s = step.seconds.compute.backward_s /
                                          static_cast<double>(method.micro_batches()) *
                                          static_cast<double>(method.exchanges.reductions_per_step());
      add_rings(step.seconds, cost, method, machine.device);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

/// A forecast without its largest batch. Each time is that of the process that is slowest in it.
StepForecast forecast_steps(const std::string& name, double flops_share,
                            const std::vector<ProcessStep>& steps, const DeviceProfile& device) {
  const auto largest = std::ranges::max_element(
      steps, [](const ProcessStep& a, const ProcessStep& b) { return a.peak.total() < b.peak.total(); });
  StepForecast forecast{.name = name,
                        .peak = largest->peak,
                        .peak_process = static_cast<int>(largest - steps.begin()),
                        .most_activations = largest->most_activations,
                        .flops_share = flops_share,
                        .fits = largest->peak.total() <= device.tensor_bytes()};
  const auto keep_largest = [](double& of_method, double seconds) {
    of_method = std::max(of_method, 1e3 * seconds);
  };
  for (const ProcessStep& step : steps) {
    const StepSeconds& seconds = step.seconds;
    keep_largest(forecast.compute_ms, seconds.compute.total_s());
    keep_largest(forecast.exchange_ms, seconds.exchange_s());
    keep_largest(forecast.waiting_ms, seconds.waiting_s());
    if (1e3 * seconds.step_s() > forecast.step_ms) forecast.slowest = seconds;
    keep_largest(forecast.step_ms, seconds.step_s());
    forecast.bytes_sent = std::max(forecast.bytes_sent, step.bytes_sent);
  }
  return forecast;
}

/// The forecast of a method. `steps`: from steps_of(method, ..).
StepForecast forecast_engine(const EngineMethod& method, const std::vector<ProcessStep>& steps,
                             const Machine& machine) {
  const DeviceProfile& device = machine.device;
  StepForecast forecast = forecast_steps(method.name, flops_share(method.plan()), steps, device);
  ExperimentSpec present = machine.experiment.spec;
  if (method.spec.train.accumulate_steps == 1)  // reduce_every has no effect
    present.train.reduce_every = method.spec.train.reduce_every;
  for (const SpecChange& change : changes_between(present, method.spec))
    forecast.settings.push_back(change.key + "=" + change.now);
  forecast.regime_file = method.regime_file;
  forecast.coverage = method.plan().coverage();
  forecast.has_local_steps = method.is_local();
  forecast.largest_batch = method.memory_on(device).largest_batch(
      steps[forecast.peak_process].cost, forecast.peak_process, device.tensor_bytes());
  return forecast;
}

StepForecast forecast_engine(const EngineMethod& method, const Machine& machine) {
  std::vector<Cost> costs;
  for (int process = 0, processes = method.different_processes(); process < processes; ++process)
    costs.push_back(cost_of(method.spec, method.plan(), method.exchanges, process));
  return forecast_engine(method, steps_of(method, costs, machine), machine);
}

/// Adds the best form of the methods with the same samples in micro-batches of at most `most`: the largest
/// that fit of every form are compared. Returns whether any fits.
bool add_smaller_batches(std::vector<StepForecast>& to, const std::vector<const EngineMethod*>& methods,
                         int64_t most, const Machine& machine) {
  std::vector<StepForecast> found;
  for (const bool checkpoints : {false, true})
    for (const EngineMethod* method : methods) {
      ExperimentSpec divided = method->spec;
      const int64_t samples = divided.train.accumulate_steps * divided.train.batch_size_per_worker;
      divided.train.accumulate_steps = samples;
      for (TrainSpec& train : forms_of(divided, checkpoints))
        for (int64_t batch = most; batch > 0 && samples / batch <= 1 << 20; --batch) {  // TrainSpec's limit
          if (samples % batch != 0) continue;
          train.batch_size_per_worker = batch;
          train.accumulate_steps = samples / batch;
          found.push_back(forecast_engine(with(*method, train), machine));
          if (found.back().fits) break;
          batch = std::min(batch, found.back().largest_batch + 1);
        }
    }
  const StepForecast* const best = best_of(found, [](const auto&) { return true; });
  if (best) to.push_back(*best);
  return best != nullptr;
}

/// Assigning more workers than these takes seconds.
constexpr int kMostWorkersAssignedAnew = 128;

/// Adds the highest coverage below the plan's that fits, of at most seven, as each has to be assigned.
void add_lower_coverage(std::vector<StepForecast>& to, const Machine& machine) {
  const auto& [present, plan, exchanges, nodes] = machine.experiment;
  if (plan.workers > kMostWorkersAssignedAnew) return;
  if (present.subnetwork.assignment == Assignment::kFile) return;  // the file's owners are of this coverage
  if (!plan.owners_per_unit()) return;                             // which of the coverages would be lower?
  std::vector<RecordedModel> recorded = {{present.model, present.data.sequence_length(), plan.layout}};
  int tried = *plan.owners_per_unit();
  for (int eighths = 7; eighths > 0; --eighths) {
    const int owners = *plan.owners_per_unit() * eighths / 8;
    if (owners == 0 || owners == std::exchange(tried, owners)) continue;
    ExperimentSpec spec = present;
    spec.subnetwork.coverage.text = fmt::format("{}/{}", owners, plan.workers);
    const Experiment lower = make_experiment(spec, exchanges.slot_map.processes, std::nullopt,
                                             nodes.processes_per_node, &recorded);
    Division division = division_of(spec, machine.device, lower.plan, lower.nodes);
    const EngineMethod method{"coverage " + spec.subnetwork.coverage.text, division, spec,
                              exchanges.slot_map};
    if (add_smaller_batches(to, {&method}, method.batch_size(), machine)) return;
  }
}

/// The forecast of fully sharded data parallelism. `ddp`: data parallelism, with or without checkpointing.
StepForecast forecast_fsdp(const EngineMethod& ddp, const Machine& machine) {
  const DeviceProfile& device = machine.device;
  const NodeMap& nodes = ddp.division.nodes;
  const FsdpBytes bytes = fsdp_bytes(ddp.plan().layout, ddp.spec, ddp.slot_map.processes);
  const Cost cost = cost_of(ddp.plan(), ddp.exchanges, ddp.spec.optimizer, 0);
  const StepMemory memory = ddp.memory_on(device);
  const auto peak_at = [&](int64_t batch_size) {
    return MemoryByKind{.weights = bytes.weights + bytes.gathered_weights,
                        .gradients = bytes.weights + bytes.unit_gradients,
                        .optimizer = bytes.optimizer,
                        .activations = memory.maxima(cost, 0, batch_size).activations,
                        .buckets = bytes.reduce_buffer};
  };
  const int64_t times = ddp.micro_batches();
  const int64_t forward = times * bytes.gather_sent;
  const int64_t backward = times * (bytes.gather_sent + bytes.reduce_sent);
  const MemoryByKind peak = peak_at(ddp.batch_size());
  ProcessStep step{
      .cost = cost,
      .peak = peak,
      .most_activations = peak.activations,
      .bytes_sent = forward + backward,
      .seconds = ComputeTimes(ddp.captures(), device).step(ddp.exchanges, cost, 0, ddp.batch_size())};
  // Shares are updated, gathered values are copied out, and gradients are packed to be reduced.
  const int64_t touched = 2 * (bytes.optimizer + bytes.weights) + 2 * (forward + backward);
  step.seconds.update_s = static_cast<double>(touched) / device.memory_bytes_per_s;
  step.seconds.alongside = step.seconds.compute;
  step.seconds.exchange_forward_s = ring_s(forward, times * bytes.units, nodes, device);
  step.seconds.exchange_backward_s = ring_s(backward, 2 * times * bytes.units, nodes, device);
  const std::string name =
      ddp.spec.train.checkpoint_activations ? "ZeRO-3/FSDP, checkpointing" : "ZeRO-3/FSDP";
  StepForecast forecast = forecast_steps(name, /*flops_share=*/1, {step}, device);
  forecast.in_this_program = false;
  forecast.largest_batch =
      largest_batch([&](int64_t batch) { return peak_at(batch).total() <= device.tensor_bytes(); });
  return forecast;
}

/// Samples per step, over all workers and replicas.
int64_t global_batch_size(const ExperimentSpec& spec, const SlotMap& slot_map) {
  return spec.train.batch_size_per_worker * spec.train.accumulate_steps * slot_map.slots();
}

RunForecast run_forecast(const Experiment& experiment, const StepForecast& plan,
                         const DeviceProfile& device) {
  const ExperimentSpec& spec = experiment.spec;
  const SlotMap& slot_map = experiment.exchanges.slot_map;
  RunForecast run{.global_batch_samples = global_batch_size(spec, slot_map),
                  .tokens_per_sample = spec.data.is_of_tokens() ? spec.data.sequence_length() : 0};
  const double step_s = plan.step_ms / 1e3;
  run.samples_per_s = static_cast<double>(run.global_batch_samples) / step_s;
  if (device.peak_flops_per_s > 0)
    run.utilization = run.samples_per_s * plan.flops_share * experiment.plan.dense_flops() /
                      (slot_map.processes * device.peak_flops_per_s);
  if (spec.train.max_steps) run.hours = static_cast<double>(*spec.train.max_steps) * step_s / 3600;
  return run;
}

}  // namespace

StepForecast forecast_plan(const Experiment& experiment, const std::vector<Cost>& costs,
                           const DeviceProfile& device) {
  Division division = division_of(experiment.spec, device, experiment.plan, experiment.nodes);
  const EngineMethod own{"this plan", division, experiment.spec, experiment.exchanges.slot_map};
  return forecast_steps(own.name, flops_share(own.plan()), steps_of(own, costs, {experiment, device}),
                        device);
}

Forecast forecast_of(const Experiment& experiment, const std::vector<Cost>& costs,
                     const DeviceProfile& device) {
  const auto& [spec, plan, exchanges, nodes] = experiment;
  const SlotMap& slot_map = exchanges.slot_map;
  const Machine machine{experiment, device};
  Division division = division_of(spec, device, plan, nodes);
  const EngineMethod own{"this plan", division, spec, slot_map};
  const std::vector<ProcessStep> own_steps = steps_of(own, costs, machine);
  Forecast forecast{.device = device,
                    .per_process = {},
                    .plan = forecast_engine(own, own_steps, machine),
                    .run = {},
                    .others = {}};
  forecast.run = run_forecast(experiment, forecast.plan, device);
  for (const ProcessStep& step : own_steps)
    forecast.per_process.push_back(step.peak);
  forecast.per_process.resize(static_cast<size_t>(slot_map.processes), forecast.per_process.front());

  // Whole branches give the fewest units; at full coverage the choice of units makes no difference.
  const SubnetPlan dense_plan_of_all = dense_plan(plan, Construction::kBlock);
  Division dense = division_of(spec, device, dense_plan_of_all, nodes);
  using enum ReduceEvery;
  const EngineMethod ddp = baseline("DDP", "ddp.yaml", dense, experiment, false, false, kStep);
  const EngineMethod zero1 = baseline("ZeRO-1", "zero1.yaml", dense, experiment, true, false, kStep);
  // ZeRO-2 keeps only a share of the gradients (Rajbhandari et al. 2020), so it reduces after every
  // micro-batch.
  const EngineMethod zero2 = baseline("ZeRO-2", "zero2.yaml", dense, experiment, true, true, kMicroBatch);
  std::vector<StepForecast>& others = forecast.others;
  for (const bool checkpoints : {false, true}) {
    for (const EngineMethod* method : {&ddp, &zero1, &zero2, &own})
      for (const TrainSpec& train : forms_of(method->spec, checkpoints))
        if (method != &own || train != spec.train)
          others.push_back(forecast_engine(with(*method, train), machine));
    others.push_back(forecast_fsdp(with(ddp, forms_of(ddp.spec, checkpoints).front()), machine));
  }
  if (own.is_local() && !spec.subnetwork.is_dense()) {
    ExperimentSpec whole = spec;
    make_dense(whole.subnetwork);
    others.push_back(
        forecast_engine(EngineMethod{"coverage 1, local steps", dense, whole, slot_map}, machine));
    const int worker = slot_map.slots_of(forecast.plan.peak_process).front().worker;
    if (const std::optional<ModelLayout> layout = narrow_layout(plan, worker)) {
      const SubnetPlan narrow_plan = make_plan(*layout, whole.subnetwork, 0);
      Division narrow = division_of(spec, device, narrow_plan, nodes);
      others.push_back(
          forecast_engine(EngineMethod{"narrower, local steps", narrow, whole, slot_map}, machine));
      others.back().flops_share = narrow_plan.dense_flops() / plan.dense_flops();
      others.back().in_this_program = false;  // as a setting of this network
      others.back().settings.clear();
    }
  }
  const int64_t smaller = own.batch_size() - 1;
  if (!best_of(others, [](const auto& other) { return other.in_this_program && other.coverage == 1; }))
    add_smaller_batches(others, {&ddp, &zero1, &zero2}, smaller, machine);
  if (forecast.plan.fits) return forecast;
  add_smaller_batches(others, {&own}, smaller, machine);
  if (forecast.verdict().change.empty()) add_lower_coverage(others, machine);
  return forecast;
}

std::vector<StepForecast> Forecast::methods() const {
  std::vector<StepForecast> all = {plan};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace sdp
