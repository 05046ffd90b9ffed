#include "cost/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "spec/table.h"
#include "spec/units.h"

namespace sdp {
namespace {

/// Of a table with more than kMostUnits units, only the first kFewUnits are shown.
constexpr size_t kMostUnits = 40;
constexpr size_t kFewUnits = 16;

/// Lists all owners, or in short form if the list is too long to read.
std::string owners_text(const std::vector<int>& owners) {
  constexpr size_t kMostCharacters = 40;
  const std::string all = fmt::format("{}", fmt::join(owners, " "));
  return all.size() <= kMostCharacters ? all : format_numbers(owners, kMostCharacters);
}

std::string unit_table(const std::vector<UnitFigures>& units) {
  TextTable table({"unit", "branch", "hidden width", "parameters", "FLOPs/sample", "owners"});
  const size_t shown = units.size() <= kMostUnits ? units.size() : kFewUnits;
  for (size_t u = 0; u < shown; ++u) {
    const UnitFigures& unit = units[u];
    table.add_row({fmt::format("{}", u), unit.branch, fmt::format("{}:{}", unit.begin, unit.end),
                   format_count(static_cast<double>(unit.parameters)), format_count(unit.flops),
                   owners_text(unit.owners)});
  }
  const size_t left_out = units.size() - shown;
  return table.str() + (left_out > 0 ? fmt::format("... and {} more (--json prints all)\n", left_out) : "");
}

/// What the subnetworks have of the network's depth; workers with equal figures share a row.
std::string depth_table(const std::vector<WorkerDepth>& depth) {
  constexpr size_t kMostCharacters = 40;  // for the numbers of a row's workers
  TextTable table({"worker", "branches by stage", "lacks stage", "longest run of absent blocks"});
  for (const auto& [own, workers] : grouped(depth)) {
    std::vector<size_t> lacking;
    for (size_t stage = 0; stage < own.branches_by_stage.size(); ++stage)
      if (own.branches_by_stage[stage] == 0) lacking.push_back(stage + 1);
    table.add_row({format_numbers(workers, kMostCharacters),
                   fmt::format("{}", fmt::join(own.branches_by_stage, " ")),
                   lacking.empty() ? "-" : fmt::format("{}", fmt::join(lacking, " ")),
                   fmt::format("{}", own.longest_gap_blocks)});
  }
  return table.str() + "\n";
}

/// Mean of a figure over the workers divided by the figure of data parallelism.
template <class Figure>
double share_of_dense(const PlanFigures& plan, Figure figure) {
  const auto of = [&](const ProcessFigures& process) {
    return static_cast<double>(std::invoke(figure, process));
  };
  double sum = 0;
  for (const ProcessFigures& worker : plan.per_worker)
    sum += of(worker) / static_cast<double>(plan.per_worker.size());
  return of(plan.dense) > 0 ? sum / of(plan.dense) : 1;
}

/// "0 1 | 2 3", or nothing if the text is too long to read.
std::string processes_by_node(const PlanFigures& plan) {
  constexpr size_t kMostCharacters = 80;
  std::vector<std::vector<int>> processes(plan.nodes.nodes);
  for (size_t process = 0; process < plan.per_process.size(); ++process)
    processes[plan.per_process[process].node.value()].push_back(static_cast<int>(process));
  std::vector<std::string> texts;
  for (const std::vector<int>& of_node : processes)
    texts.push_back(format_numbers(of_node));
  const std::string text = fmt::format(" ({})", fmt::join(texts, " | "));
  return text.size() <= kMostCharacters ? text : "";
}

/// Traffic inside and between nodes, if there are several.
std::string node_table(const PlanFigures& plan) {
  const NodeFigures& nodes = plan.nodes;
  if (nodes.nodes == 1)
    return nodes.placement == NodePlacement::kInOrder
               ? ""
               : fmt::format("placement {} has no effect: all processes are on one node\n\n",
                             name_of(nodes.placement));
  TextTable table({"sent/step", "inside nodes", "between nodes", "largest process inside", "between"});
  const auto add = [&](const std::string& name, const NodeTraffic& traffic) {
    table.add_row({name, format_bytes(traffic.inside), format_bytes(traffic.between),
                   format_bytes(traffic.largest_inside), format_bytes(traffic.largest_between)});
  };
  add("this plan", nodes.sdp);
  add("DDP, the same exchange", nodes.ddp);
  add("DDP, a ring all-reduce", nodes.ddp_ring);
  std::string text =
      fmt::format("{} nodes of {} processes, placement {}{}\nunits with all owners on one node: {} of {}\n{}",
                  nodes.nodes, nodes.processes_per_node, name_of(nodes.placement), processes_by_node(plan),
                  nodes.units_in_one_node, plan.units.size(), table.str());
  if (nodes.ddp_ring.between < nodes.sdp.between)
    text += fmt::format(
        "A ring all-reduce of the full model would send {} of this plan's bytes between nodes.\n",
        format_percent(static_cast<double>(nodes.ddp_ring.between) / static_cast<double>(nodes.sdp.between)));
  return text + "\n";
}

std::string spectrum_table(const SpectrumFigures& spectrum) {
  TextTable table({"units weighted by", "lambda2", "its lower bound", "spectral gap", "normalized lambda2",
                   "its lower bound"});
  const auto add = [&](const char* weight, const Spectrum& of) {
    std::vector<std::string> row = {weight};
    for (double value : {of.lambda2, of.lambda2_bound, of.spectral_gap, of.lambda2_normalized,
                         spectrum.lambda2_normalized_bound})
      row.push_back(fmt::format("{:.3f}", value));
    table.add_row(row);
  };
  add("1", spectrum.by_unit);
  add("parameters", spectrum.by_parameters);
  add("FLOPs", spectrum.by_flops);
  return table.str();
}

std::string summary(const PlanFigures& plan) {
  const BalanceFigures& balance = plan.balance;
  std::string text = fmt::format(
      "mean over workers relative to DDP: FLOPs {}, weights + gradients + optimizer {}, activations {}, sent "
      "{}\n"
      "balance (max/mean over workers): FLOPs {:.3f}, parameters {:.3f}, state bytes {:.3f}, sent bytes "
      "{:.3f}\n\n{}\n",
      format_percent(share_of_dense(plan, &Cost::flops_per_sample)),
      format_percent(share_of_dense(plan, &Cost::state_bytes)),
      format_percent(share_of_dense(plan, &ProcessFigures::activation_bytes)),
      format_percent(share_of_dense(plan, &Cost::bytes_sent_per_step)), balance.flops, balance.parameters,
      balance.state_bytes, balance.bytes_sent, spectrum_table(plan.spectrum));
  if (balance.flops > 1.05 && plan.coverage < 1)
    text += fmt::format(
        "Units are few and unequal: the busiest worker has {:.1f} % more FLOPs than the mean and determines\n"
        "the step time.\n",
        100 * (balance.flops - 1));
  return text;
}

/// Peak memory, step time and largest batch of every method.
std::string forecast_table(const Forecast& forecast, int64_t micro_batches) {
  const DeviceProfile& device = forecast.device;
  std::string text = fmt::format(
      "one {} per process: {} of memory, {} of it not available to tensors; {}FLOP/s in large products,\n"
      "{}B/s memory bandwidth, {:.1f} us per launch; {}B/s to processes of the same node, "
      "{}B/s to other nodes{}\n"
      "These rates {}; all times below are estimates from them.\n",
      device.name, format_bytes(device.memory_bytes),
      format_bytes(device.memory_bytes - device.tensor_bytes()), format_count(device.flops_per_s),
      format_count(device.memory_bytes_per_s), 1e6 * device.launch_s, format_count(device.inside_bytes_per_s),
      format_count(device.between_bytes_per_s),
      device.latency_s ? fmt::format(", {:g} us per message", 1e6 * *device.latency_s) : "",
      device.rates == RatesFrom::kDataSheet ? "are from the data sheet, not measured"
                                            : "were measured by sdp-train doctor");
  TextTable table({"method", "peak", "activations at the peak", "most activations", "FLOPs", "sent/step",
                   "compute", "exchange", "waiting", "step", "largest batch"});
  for (const StepForecast& method : forecast.methods())
    table.add_row({method.name, format_bytes(method.peak.total()), format_bytes(method.peak.activations),
                   format_bytes(method.most_activations), format_percent(method.flops_share),
                   format_bytes(method.bytes_sent), format_milliseconds(method.compute_ms),
                   format_milliseconds(method.exchange_ms), format_milliseconds(method.waiting_ms),
                   format_milliseconds(method.step_ms), fmt::format("{}", method.largest_batch)});
  text += table.str();
  text += "Activations include the workspace. A batch is that of a worker.\n";
  if (micro_batches > 1)
    text += fmt::format(
        "ZeRO-3/FSDP gathers parameters and reduces gradients in each of the {} micro-batches of a step.\n",
        micro_batches);
  return text + "\n";
}

/// What the exchange that ends a round sends and takes.
std::string local_steps_text(const StepForecast& plan, int64_t every_steps) {
  const auto steps = static_cast<double>(every_steps);
  const double round_ms = plan.exchange_ms * steps;
  return fmt::format(
      "Local steps: one exchange per {} steps, in which a process sends up to {}; it takes {}. With\n"
      "exchange.every_steps of {:.0f} or more, exchanges take at most a tenth of the time of the passes.\n\n",
      every_steps, format_bytes(plan.bytes_sent * every_steps), format_duration(round_ms / 1e3),
      std::max(1.0, std::ceil(round_ms / (0.1 * plan.compute_ms))));
}

/// Batch, rate and length of this plan's run.
std::string run_text(const RunForecast& run) {
  std::string text = fmt::format("A step of this plan trains on {} samples", run.global_batch_samples);
  const int64_t tokens = run.tokens_per_sample;
  if (tokens > 0)
    text += fmt::format(" ({} tokens)", format_count(static_cast<double>(run.global_batch_samples * tokens)));
  text += tokens > 0
              ? fmt::format(", {} tokens/s", format_count(run.samples_per_s * static_cast<double>(tokens)))
              : fmt::format(", {} samples/s", format_count(run.samples_per_s));
  if (run.utilization > 0)
    text += fmt::format(", {} of the devices' peak FLOP/s", format_percent(run.utilization));
  if (run.hours > 0) text += fmt::format("; the run takes {}", format_duration(3600 * run.hours));
  return text + ".\n";
}

/// "DDP (12.0 GiB; as in configs/regime/ddp.yaml): --set ... --set ..."
std::string choice_text(const Forecast& forecast, const std::string& name) {
  if (name.empty()) return "nothing fits\n";
  const std::vector<StepForecast> methods = forecast.methods();
  const StepForecast& method =
      *std::find_if(methods.begin(), methods.end(), [&](const auto& other) { return other.name == name; });
  std::string text = fmt::format("{} ({}{}{})", name, format_bytes(method.peak.total()),
                                 method.regime_file.empty() ? "" : "; as in ", method.regime_file);
  if (!method.in_this_program) text += ", which PyTorch has";
  if (!method.settings.empty()) text += fmt::format(": --set {}", fmt::join(method.settings, " --set "));
  return text + "\n";
}

/// What to use: by coverage, and by time. Where that is another program's, also the best of this program.
std::string recommendation_text(const Forecast& forecast, const Verdict& verdict) {
  std::string text = "Recommended: " + choice_text(forecast, verdict.recommended);
  if (verdict.recommended_here != verdict.recommended)
    text += "In this program: " + choice_text(forecast, verdict.recommended_here);
  if (verdict.fastest_over_recommended > 0.98) return text;
  text +=
      fmt::format("At equal FLOPs, in {} of its time: {}", format_percent(verdict.fastest_over_recommended),
                  choice_text(forecast, verdict.fastest));
  if (verdict.fastest_here != verdict.fastest)
    text += "In this program: " + choice_text(forecast, verdict.fastest_here);
  return text;
}

/// What fits, what to use, and how this plan compares with data parallelism.
std::string verdict_text(const Forecast& forecast, double coverage) {
  const Verdict verdict = forecast.verdict();
  std::vector<std::string> too_large;
  for (const StepForecast& method : forecast.methods())
    if (!method.fits) too_large.push_back(method.name);
  std::string text = run_text(forecast.run);
  if (!verdict.fit.empty())
    text += fmt::format("Fits in {}: {}.\n", format_bytes(forecast.device.memory_bytes),
                        fmt::join(verdict.fit, "; "));
  if (!too_large.empty()) text += fmt::format("Does not fit: {}.\n", fmt::join(too_large, "; "));
  text += recommendation_text(forecast, verdict);
  if (!verdict.change.empty()) text += "This plan would fit as: " + choice_text(forecast, verdict.change);
  const StepForecast& plan = forecast.plan;
  if (coverage >= 1 && !plan.has_local_steps) return text + "Coverage 1 is ordinary data parallelism.\n";
  text += fmt::format(
      "Compared with DDP, this plan has {} of the peak memory, and takes {} of the time at equal FLOPs "
      "({} of a step's\n"
      "time for {} of its FLOPs). It waits for exchanges for {} of a step, DDP for {}.\n"
      "Its accuracy is not predicted",
      format_percent(verdict.memory_share), format_percent(verdict.time_at_equal_flops),
      format_percent(plan.step_ms / forecast.others.front().step_ms), format_percent(plan.flops_share),
      format_percent(plan.waiting_ms / plan.step_ms),
      format_percent(forecast.others.front().waiting_ms / forecast.others.front().step_ms));
  if (plan.has_local_steps) return text + "; recommendations leave out local steps (docs/local_steps.md).\n";
  return text +
         ". docs/results/evidence compares methods at equal FLOPs: with ResNet-18 on\n"
         "CIFAR-10, DDP is ahead of every lower coverage; with a small LLaMA, N-SDP 4/8 is level with DDP, "
         "the others\n"
         "are behind.\n";
}

}  // namespace

std::string describe_plan(const PlanFigures& plan, const ExperimentSpec& spec) {
  std::string text = fmt::format(
      "{}: {}; {} parameters\n"
      "{} workers, {}coverage {:.3f}, {} construction, {} masking\n\n{}\n",
      plan.model, sizes_text(spec.model), format_count(static_cast<double>(plan.dense.parameters)),
      plan.workers, plan.owners_per_unit ? fmt::format("{} owners per unit, ", *plan.owners_per_unit) : "",
      plan.coverage, name_of(plan.construction), name_of(plan.masking), unit_table(plan.units));
  if (plan.coverage < 1 && !plan.depth.empty()) text += depth_table(plan.depth);
  const TrainSpec& train = spec.train;
  text += fmt::format("batch {} per worker, {}, optimizer {}:\n{}\n", train.batch_size_per_worker,
                      name_of(train.precision), spec.optimizer.rule.name(),
                      cost_table("worker", plan.per_worker, &plan.dense));
  if (plan.processes != plan.workers)
    text += fmt::format("on {} processes:\n{}\n", plan.processes,
                        cost_table("process", plan.per_process, nullptr));
  text += node_table(plan);
  const Forecast& forecast = plan.forecast.value();
  const int64_t slots_per_process = int64_t{plan.workers} * plan.replicas / plan.processes;
  text += forecast_table(forecast, train.accumulate_steps * slots_per_process);
  if (spec.exchange.is_local()) text += local_steps_text(forecast.plan, *spec.exchange.every_steps);
  text += summary(plan);
  text += verdict_text(forecast, plan.coverage);
  for (const std::string& warning : plan.warnings)
    text += fmt::format("warning: {}\n", warning);
  return text;
}

}  // namespace sdp
