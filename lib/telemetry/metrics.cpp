#include "telemetry/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/lines.h"
#include "spec/error.h"

namespace sdp {

using nlohmann::ordered_json;

std::string to_json_line(const TrainRecord& record) {
  const ExchangeRecord& exchange = record.exchange;
  const MemoryRecord& memory = record.memory;
  return ordered_json{{"kind", "train"},
                      {"step", record.step},
                      {"epoch", record.epoch},
                      {"loss", record.loss},
                      {"lr", record.lr},
                      {"samples_per_s", record.samples_per_s},
                      {"step_ms", record.step_ms},
                      {"data_wait_ms", record.data_wait_ms},
                      {"skipped_samples", record.skipped_samples},
                      {"peak_process_memory_bytes", record.peak_process_memory_bytes},
                      {"peak_tensor_memory_bytes", record.peak_tensor_memory_bytes},
                      {"bytes_sent", record.bytes_sent},
                      {"overlap", record.overlap},
                      {"slowest_rank", record.slowest_rank},
                      {"exchange",
                       {{"reduce_bytes", exchange.reduce_bytes},
                        {"publish_bytes", exchange.publish_bytes},
                        {"reduce_ms", exchange.reduce_ms},
                        {"publish_ms", exchange.publish_ms},
                        {"reduce_wait_ms", exchange.reduce_wait_ms},
                        {"publish_wait_ms", exchange.publish_wait_ms},
                        {"busy_ms", exchange.busy_ms}}},
                      {"memory",
                       {{"activations_bytes", memory.activations_bytes},
                        {"weights_bytes", memory.weights_bytes},
                        {"gradients_bytes", memory.gradients_bytes},
                        {"optimizer_bytes", memory.optimizer_bytes},
                        {"buckets_bytes", memory.buckets_bytes}}}}
      .dump();
}

std::string to_json_line(const EvalRecord& record) {
  ordered_json json = {{"kind", "eval"}, {"step", record.step}, {"loss", record.loss}};
  if (record.is_of_tokens()) json["perplexity"] = perplexity(record.loss);
  json["accuracy"] = record.accuracy;
  json["samples"] = record.samples;
  json["test_samples"] = record.test_samples;
  if (record.is_of_tokens()) {
    json["tokens"] = record.tokens;
    json["test_tokens"] = record.test_tokens;
  }
  if (record.skipped_samples > 0) json["skipped_samples"] = record.skipped_samples;
  if (record.loss_uncorrected) {
    json["loss_uncorrected"] = *record.loss_uncorrected;
    if (record.is_of_tokens()) json["perplexity_uncorrected"] = perplexity(*record.loss_uncorrected);
  }
  if (record.accuracy_uncorrected) json["accuracy_uncorrected"] = *record.accuracy_uncorrected;
  if (record.loss_uncorrected) {
    json["recalibrated_batches"] = record.recalibrated_batches;
    json["branch_scale"] = record.branch_scale;
  }
  if (const std::optional<BranchScaleTrial>& trial = record.branch_scale_trial)
    json["branch_scale_trial"] = {{"samples", trial->samples},
                                  {"loss_none", trial->loss_none},
                                  {"loss_survival", trial->loss_survival}};
  if (!record.subnetwork_loss.empty()) {
    json["subnetwork_loss"] = record.subnetwork_loss;
    json["subnetwork_accuracy"] = record.subnetwork_accuracy;
    json["subnetwork_samples"] = record.subnetwork_samples;
    json["loss_on_subnetwork_samples"] = record.loss_on_subnetwork_samples;
    json["accuracy_on_subnetwork_samples"] = record.accuracy_on_subnetwork_samples;
  }
  const EvalTimes& times = record.times;
  json["eval_s"] = times.eval_s;
  json["assemble_s"] = times.assemble_s;
  json["recalibrate_s"] = times.recalibrate_s;
  json["evaluate_s"] = times.evaluate_s;
  json["subnetworks_s"] = times.subnetworks_s;
  return json.dump();
}

double perplexity(double loss) {
  return std::exp(loss);
}

std::string to_json_line(const StartRecord& record) {
  ordered_json json = {{"kind", "start"}, {"step", record.step}};
  if (!record.checkpoint.empty()) json["checkpoint"] = record.checkpoint;
  json["data_s"] = record.data_s;
  json["time"] = record.time;
  json["version"] = record.version;
  if (!record.job.empty()) {
    json["job"] = record.job;
    json["job_restarts"] = record.job_restarts;
  }
  json["hosts"] = record.hosts;
  json["threads"] = record.threads;
  return json.dump();
}

std::string to_json_line(const CheckpointRecord& record) {
  return ordered_json{
      {"kind", "checkpoint"}, {"step", record.step}, {"save_s", record.save_s}, {"bytes", record.bytes}}
      .dump();
}

std::string to_json_line(const NonfiniteRecord& record) {
  ordered_json batches = ordered_json::array();
  for (const NonfiniteBatch& batch : record.batches)
    batches.push_back({{"rank", batch.rank},
                       {"worker", batch.worker},
                       {"replica", batch.replica},
                       {"loss_is_finite", batch.loss_is_finite},
                       {"samples", batch.samples}});
  return ordered_json{{"kind", "nonfinite"},
                      {"step", record.step},
                      {"skipped", record.skipped},
                      {"gradient_ranks", record.gradient_ranks},
                      {"batches", std::move(batches)}}
      .dump();
}

std::string to_json_line(const TraceRecord& record) {
  return ordered_json{{"step", record.step},
                      {"worker", record.worker},
                      {"replica", record.replica},
                      {"loss", record.loss},
                      {"samples", record.samples}}
      .dump();
}

int64_t cut_back(const std::filesystem::path& path, int64_t last_step) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return 0;
  AtomicFile kept(path);
  int64_t kept_lines = 0;
  for_each_line(path, [&](int64_t number, const std::string& line, bool is_whole) {
    if (!is_whole) return;  // the last line was cut short
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
      throw DataError(
          path.string() + ", line " + std::to_string(number) +
          ": not a JSON object with a step. Delete that line, or move the file away, and resume again.");
    if (json["step"].get<int64_t>() > last_step) return;
    kept.write(line + "\n");
    ++kept_lines;
  });
  kept.commit();
  return kept_lines;
}

std::optional<FoundEvaluation> find_evaluation(const std::filesystem::path& path, int64_t step) {
  std::optional<FoundEvaluation> found;
  for_each_line(path, [&](int64_t, const std::string& line, bool) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.value("kind", "") == "eval" && json.value("step", int64_t{-1}) == step)
      found = {.branch_scale = json.value("branch_scale", 1.0)};
  });
  return found;
}

}  // namespace sdp
