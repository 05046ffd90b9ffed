#include <nlohmann/json.hpp>

#include "forecast/forecast.h"
#include "spec/json_fields.h"

namespace sdp {
namespace {

nlohmann::ordered_json peak_json(const PeakBytes& peak) {
  return {{"total", peak.total()},       {"weights", peak.weights},         {"gradients", peak.gradients},
          {"optimizer", peak.optimizer}, {"activations", peak.activations}, {"buckets", peak.buckets}};
}

nlohmann::ordered_json way_json(const StepForecast& way) {
  return {{"name", way.name},
          {"peak_bytes", peak_json(way.peak)},
          {"peak_process", way.peak_process},
          {"most_activation_bytes", way.most_activations},
          {"flops_share", way.flops_share},
          {"bytes_sent_per_step", way.bytes_sent},
          {"compute_ms", way.compute_ms},
          {"exchange_ms", way.exchange_ms},
          {"waiting_ms", way.waiting_ms},
          {"step_ms", way.step_ms},
          {"fits", way.fits},
          {"largest_batch_size_per_worker", way.largest_batch}};
}

}  // namespace

void add_forecast(nlohmann::ordered_json& plan_json, const Forecast& forecast) {
  for (size_t process = 0; process < forecast.per_process.size(); ++process)
    plan_json["per_process"][process]["peak_bytes"] = peak_json(forecast.per_process[process]);
  if (plan_json["processes"] == plan_json["workers"] && plan_json["replicas"] == 1)
    plan_json["per_worker"] = plan_json["per_process"];
  nlohmann::ordered_json& json = plan_json["forecast"];
  json["device"] = json_of(forecast.device);
  json["ways"].push_back(way_json(forecast.plan));
  for (const StepForecast& way : forecast.others)
    json["ways"].push_back(way_json(way));
  const Verdict verdict = verdict_of(forecast);
  json["verdict"] = {{"time_at_equal_flops_over_ddp", verdict.time_at_equal_flops},
                     {"peak_over_ddp", verdict.memory_share},
                     {"pays_in_time", verdict.pays_in_time},
                     {"pays_in_memory", verdict.pays_in_memory},
                     {"is_the_only_to_fit", verdict.is_the_only_to_fit}};
  const ModelParallelTraffic& traffic = forecast.model_parallel;
  json["model_parallel"] = {
      {"global_batch_size", traffic.global_batch_size},
      {"tensor",
       {{"processes", traffic.tensor_processes}, {"bytes_sent_per_step", traffic.tensor_bytes_sent}}},
      {"pipeline",
       {{"stages", traffic.pipeline_stages}, {"bytes_sent_per_step", traffic.pipeline_bytes_sent}}}};
}

}  // namespace sdp
