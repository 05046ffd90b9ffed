#include "plan/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plan/cost_table.h"
#include "subnet/plan_json.h"
#include "text/table.h"
#include "text/units.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

/// A table of more units than these is cut down to its beginning.
constexpr size_t kMostUnits = 40;
constexpr size_t kFewUnits = 16;

/// All of them one by one, or in short where that is too long to read.
std::string owners_text(const std::vector<int>& owners) {
  constexpr size_t kMostCharacters = 40;
  const std::string all = fmt::format("{}", fmt::join(owners, " "));
  return all.size() <= kMostCharacters ? all : format_numbers(owners, kMostCharacters);
}

std::string unit_table(const Json& plan) {
  TextTable table({"unit", "branch", "hidden width", "parameters", "FLOPs/sample", "owners"});
  const size_t shown = plan["units"].size() <= kMostUnits ? plan["units"].size() : kFewUnits;
  for (size_t u = 0; u < shown; ++u) {
    const Json& unit = plan["units"][u];
    table.add_row({fmt::format("{}", u), unit["branch"].get<std::string>(),
                   fmt::format("{}:{}", unit["begin"].get<int64_t>(), unit["end"].get<int64_t>()),
                   format_count(unit["parameters"].get<double>()), format_count(unit["flops"].get<double>()),
                   owners_text(unit["owners"].get<std::vector<int>>())});
  }
  const size_t left_out = plan["units"].size() - shown;
  return table.str() + (left_out > 0 ? fmt::format("... and {} more (--json prints all)\n", left_out) : "");
}

/// Mean over workers of a figure, over data parallelism's.
double share_of_dense(const Json& plan, const std::vector<const char*>& keys) {
  double sum = 0;
  double dense = 0;
  for (const char* key : keys) {
    for (const Json& cost : plan["per_worker"])
      sum += cost[key].get<double>() / plan["per_worker"].size();
    dense += plan["dense"][key].get<double>();
  }
  return dense > 0 ? sum / dense : 1;
}

/// "0 1 | 2 3", or nothing where that is too long to read.
std::string processes_by_node(const NodeMap& nodes) {
  constexpr size_t kMostCharacters = 80;
  std::vector<std::string> texts;
  for (int node = 0; node < nodes.nodes(); ++node)
    texts.push_back(format_numbers(nodes.processes_in(node)));
  const std::string text = fmt::format(" ({})", fmt::join(texts, " | "));
  return text.size() <= kMostCharacters ? text : "";
}

/// What passes inside and between nodes, where there are several.
std::string node_table(const Json& plan, const NodeMap& nodes) {
  if (nodes.nodes() == 1)
    return nodes.placement == NodePlacement::kInOrder
               ? ""
               : fmt::format("placement {} has no effect: all processes are in one node\n\n",
                             name_of(nodes.placement));
  const Json& json = plan["nodes"];
  TextTable table({"sent/step", "inside nodes", "between nodes", "largest process inside", "between"});
  const auto add = [&](const std::string& name, const Json& traffic) {
    std::vector<std::string> row = {name};
    for (const char* key : {"inside_bytes_per_step", "between_bytes_per_step",
                            "largest_inside_bytes_per_step", "largest_between_bytes_per_step"})
      row.push_back(format_bytes(traffic[key].get<int64_t>()));
    table.add_row(row);
  };
  add("this plan", json["sdp"]);
  add("DDP, the same exchange", json["ddp"]);
  add("DDP, a ring all-reduce", json["ddp_ring"]);
  std::string text =
      fmt::format("{} nodes of {} processes, placement {}{}\nunits with all owners in one node: {} of {}\n{}",
                  nodes.nodes(), nodes.processes_per_node, name_of(nodes.placement), processes_by_node(nodes),
                  json["units_in_one_node"].get<int>(), plan["units"].size(), table.str());
  const double ring = json["ddp_ring"]["between_bytes_per_step"].get<double>();
  const double ours = json["sdp"]["between_bytes_per_step"].get<double>();
  if (ring < ours)
    text += fmt::format(
        "Between nodes, a ring all-reduce of the full model would send {} of this plan's bytes.\n",
        format_percent(ring / ours));
  return text + "\n";
}

std::string summary(const Json& plan) {
  const double state = share_of_dense(plan, {"parameter_bytes", "gradient_bytes", "optimizer_bytes"});
  const double sent = share_of_dense(plan, {"bytes_sent_per_step"});
  const double flops = share_of_dense(plan, {"flops_per_sample"});
  std::string text = fmt::format(
      "mean over workers against DDP: FLOPs {}, weights + gradients + optimizer {}, activations {}, sent "
      "{}\n",
      format_percent(flops), format_percent(state),
      format_percent(share_of_dense(plan, {"activation_bytes"})), format_percent(sent));
  const Json& balance = plan["balance"];
  text += fmt::format(
      "balance (max/mean over workers): FLOPs {:.3f}, parameters {:.3f}, state bytes {:.3f}, sent bytes "
      "{:.3f}\n",
      balance["flops_max_over_mean"].get<double>(), balance["parameters_max_over_mean"].get<double>(),
      balance["state_bytes_max_over_mean"].get<double>(), balance["bytes_sent_max_over_mean"].get<double>());
  TextTable spectrum({"units weighted by", "lambda2", "spectral gap", "bound on lambda2", "normalized",
                      "bound on normalized"});
  for (const auto& [key, label] :
       {std::pair{"by_unit", "1"}, {"by_parameters", "parameters"}, {"by_flops", "FLOPs"}}) {
    const Json& values = plan["spectrum"][key];
    spectrum.add_row({label, fmt::format("{:.3f}", values["lambda2"].get<double>()),
                      fmt::format("{:.3f}", values["spectral_gap"].get<double>()),
                      fmt::format("{:.3f}", values["lambda2_bound"].get<double>()),
                      fmt::format("{:.3f}", values["lambda2_normalized"].get<double>()),
                      fmt::format("{:.3f}", plan["spectrum"]["lambda2_normalized_bound"].get<double>())});
  }
  text += fmt::format("\n{}\n", spectrum.str());
  const double imbalance = balance["flops_max_over_mean"].get<double>();
  if (imbalance > 1.05 && plan["coverage"].get<double>() < 1)
    text += fmt::format(
        "Units are few and unequal: the busiest worker has {:.1f} % more FLOPs than the mean and sets the\n"
        "step time.\n",
        100 * (imbalance - 1));
  return text;
}

std::string milliseconds(double ms) {
  return ms < 10 ? fmt::format("{:.2f} ms", ms) : fmt::format("{:.0f} ms", ms);
}

const char* where_from(RatesFrom rates) {
  switch (rates) {
    case RatesFrom::kDataSheet:
      return "These rates, and so all times below, are estimates from the data sheet: not measured.";
    case RatesFrom::kSavedProfile:
      return "These rates were measured by sdp-train doctor; all times below are estimates from them.";
    case RatesFrom::kThisDevice:
      return "Each operation was timed on this device; links were not.";
  }
  return "";
}

/// Peak, time and batch of every way to train.
std::string forecast_table(const Forecast& forecast, const TrainSpec& train, int64_t micro_batches) {
  const DeviceProfile& device = forecast.device;
  std::string text = fmt::format(
      "one {} per process: {} of memory, {} of it not for tensors; {}FLOP/s in large products,\n"
      "{}B/s in its memory, {:.1f} us a launch; {}B/s to processes of the same node, {}B/s to other nodes\n"
      "{}\n",
      device.name, format_bytes(device.memory_bytes), format_bytes(device.allowance_bytes),
      format_count(device.flops_per_s), format_count(device.memory_bytes_per_s), 1e6 * device.launch_s,
      format_count(device.inside_bytes_per_s), format_count(device.between_bytes_per_s),
      where_from(device.rates));
  TextTable table({"way to train", "peak", "activations at the peak", "most activations", "FLOPs",
                   "sent/step", "compute", "exchange", "waiting", "step", "largest batch"});
  const auto add = [&](const StepForecast& way) {
    table.add_row({way.name, format_bytes(way.peak.total()), format_bytes(way.peak.activations),
                   format_bytes(way.most_activations), format_percent(way.flops_share),
                   format_bytes(way.bytes_sent), milliseconds(way.compute_ms), milliseconds(way.exchange_ms),
                   milliseconds(way.waiting_ms), milliseconds(way.step_ms),
                   fmt::format("{}", way.largest_batch)});
  };
  add(forecast.plan);
  for (const StepForecast& way : forecast.others)
    add(way);
  text += table.str();
  text += fmt::format("This plan {} at batch {} per worker{}.\n",
                      forecast.plan.fits ? "fits" : "does not fit", train.batch_size_per_worker,
                      forecast.plan.largest_batch > 0
                          ? fmt::format("; the largest batch that does is {}", forecast.plan.largest_batch)
                          : ", and at no other batch");
  if (micro_batches > 1)
    text += fmt::format(
        "ZeRO-3/FSDP gathers parameters and reduces gradients in each of the {} micro-batches of a step.\n",
        micro_batches);
  return text + "\n";
}

/// Whether this plan pays, by the figures of the table.
std::string verdict_text(const Forecast& forecast) {
  const Verdict verdict = verdict_of(forecast);
  const StepForecast& plan = forecast.plan;
  const StepForecast& ddp = forecast.others.front();
  std::string text = fmt::format(
      "This plan against DDP: a step takes {} of the time for {} of the FLOPs, so that training with equal\n"
      "FLOPs takes {} of the time. For exchanges this plan waits {} of a step, DDP {}.\n"
      "Its peak is {} of DDP's, and {} of that of {}, the smallest without checkpointing.\n",
      format_percent(plan.step_ms / ddp.step_ms), format_percent(plan.flops_share / ddp.flops_share),
      format_percent(verdict.time_at_equal_flops), format_percent(plan.waiting_ms / plan.step_ms),
      format_percent(ddp.waiting_ms / ddp.step_ms), format_percent(verdict.memory_share),
      format_percent(verdict.smallest_share), verdict.smallest);
  if (verdict.is_the_only_to_fit) return text + "Without checkpointing only this plan fits.\n";
  const char* pays = verdict.pays_in_time && verdict.pays_in_memory ? "in time and in memory"
                     : verdict.pays_in_time                         ? "in time, not in memory"
                     : verdict.pays_in_memory                       ? "in memory, not in time"
                                                                    : "neither in time nor in memory";
  return text + fmt::format("By these figures SDP pays {}.\n", pays);
}

/// Activations that tensor and pipeline parallelism would send.
std::string model_parallel_table(const ModelParallelTraffic& traffic) {
  TextTable table({"model parallelism", "processes", "sent/step"});
  table.add_row(
      {"tensor", fmt::format("{}", traffic.tensor_processes), format_bytes(traffic.tensor_bytes_sent)});
  table.add_row({"pipeline (busiest stage)", fmt::format("{}", traffic.pipeline_stages),
                 format_bytes(traffic.pipeline_bytes_sent)});
  return fmt::format(
      "activations that each process would send under model parallelism, same global batch of {}:\n{}{}\n",
      traffic.global_batch_size, table.str(),
      traffic.pipeline_stages < traffic.tensor_processes
          ? "A pipeline has no more stages than the model has blocks.\n"
          : "");
}

/// Kinds of memory with what was predicted and what was measured.
struct KindRow {
  const char* name;
  int64_t predicted_bytes;
  int64_t measured_bytes;
};

std::vector<KindRow> kind_rows(const StepMeasurement& measured, const PeakBytes& predicted) {
  const MemoryByKind& peak = measured.peak;
  return {{"weights", predicted.weights, peak[MemoryKind::kWeights]},
          {"gradients", predicted.gradients, peak[MemoryKind::kGradients]},
          {"optimizer", predicted.optimizer, peak[MemoryKind::kOptimizer]},
          {"activations", predicted.activations, peak[MemoryKind::kActivations]},
          {"buckets", predicted.buckets, peak[MemoryKind::kBuckets]},
          {"peak", predicted.total(), peak.total()}};
}

}  // namespace

std::string describe_plan(const Experiment& experiment, const Forecast& forecast) {
  Json plan = plan_json(experiment.plan, experiment.schedule, experiment.nodes, experiment.spec);
  add_forecast(plan, forecast);
  std::string text =
      fmt::format("{}: {} workers, {} owners per unit, coverage {:.3f}, {} construction, {} masking\n\n",
                  plan["model"].get<std::string>(), plan["workers"].get<int>(),
                  plan["owners_per_unit"].get<int>(), plan["coverage"].get<double>(),
                  plan["construction"].get<std::string>(), plan["masking"].get<std::string>());
  text += fmt::format("{}\n", unit_table(plan));
  text += fmt::format("batch {} per worker, {}, optimizer {}:\n", experiment.spec.train.batch_size_per_worker,
                      name_of(experiment.spec.train.precision), name_of(experiment.spec.optimizer.name));
  text += fmt::format("{}\n", cost_table("worker", plan["per_worker"], &plan["dense"]));
  const Placement& placement = experiment.schedule.placement;
  if (placement.processes != placement.workers)
    text += fmt::format("on {} processes:\n{}\n", placement.processes,
                        cost_table("process", plan["per_process"], nullptr));
  text += node_table(plan, experiment.nodes);
  const TrainSpec& train = experiment.spec.train;
  text += forecast_table(forecast, train, train.accumulate_steps * placement.slots_per_process());
  text += model_parallel_table(forecast.model_parallel);
  text += summary(plan);
  text +=
      experiment.plan.coverage() >= 1 ? "Coverage 1 is ordinary data parallelism.\n" : verdict_text(forecast);
  for (const Json& warning : plan["warnings"])
    text += fmt::format("warning: {}\n", warning.get<std::string>());
  return text;
}

std::string describe_measurement(const Experiment& experiment, const StepMeasurement& measured,
                                 const StepPrediction& predicted) {
  std::string text =
      fmt::format("{}: process {} of {} alone, median of {} steps on {}: {}, planned {} ({:.2f} of it)\n",
                  experiment.plan.layout.name, measured.process, experiment.schedule.placement.processes,
                  measured.steps, measured.device, milliseconds(measured.step_ms),
                  milliseconds(predicted.step_ms), predicted.step_ms / measured.step_ms);
  TextTable table({"tensors at the peak", "predicted", "measured", "predicted/measured"});
  for (const KindRow& row : kind_rows(measured, predicted.peak))
    table.add_row({row.name, format_bytes(row.predicted_bytes), format_bytes(row.measured_bytes),
                   row.measured_bytes > 0 ? fmt::format("{:.3f}", static_cast<double>(row.predicted_bytes) /
                                                                      static_cast<double>(row.measured_bytes))
                                          : "-"});
  return text + table.str();
}

std::string measurement_json(const StepMeasurement& measured, const StepPrediction& predicted) {
  Json json = {{"process", measured.process},
               {"device", measured.device},
               {"steps", measured.steps},
               {"predicted_step_ms", predicted.step_ms},
               {"step_ms", measured.step_ms}};
  for (const KindRow& row : kind_rows(measured, predicted.peak)) {
    json["predicted_bytes"][row.name] = row.predicted_bytes;
    json["measured_bytes"][row.name] = row.measured_bytes;
  }
  return json.dump(2) + "\n";
}

}  // namespace sdp
