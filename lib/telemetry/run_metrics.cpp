#include "telemetry/run_metrics.h"

#include <numeric>

namespace sdp {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

std::vector<Scalar> scalars_of(const TrainRecord& record) {
  return {{"train/loss", record.loss},
          {"train/lr", record.lr},
          {"train/epoch", record.epoch},
          {"train/samples_per_s", record.samples_per_s},
          {"train/step_ms", record.step_ms},
          {"train/data_wait_ms", record.data_wait_ms},
          {"train/peak_process_memory_bytes", static_cast<double>(record.peak_process_memory_bytes)},
          {"train/peak_tensor_memory_bytes", static_cast<double>(record.peak_tensor_memory_bytes)},
          {"train/bytes_sent", static_cast<double>(record.bytes_sent)},
          {"train/overlap", record.overlap}};
}

std::vector<Scalar> scalars_of(const EvalRecord& record) {
  std::vector<Scalar> scalars = {
      {"eval/accuracy", record.accuracy}, {"eval/loss", record.loss}, {"eval/eval_s", record.times.eval_s}};
  if (record.is_of_tokens()) scalars.push_back({"eval/perplexity", perplexity(record.loss)});
  if (record.accuracy_uncorrected)
    scalars.push_back({"eval/accuracy_uncorrected", *record.accuracy_uncorrected});
  if (record.loss_uncorrected) {
    scalars.push_back({"eval/loss_uncorrected", *record.loss_uncorrected});
    if (record.is_of_tokens())
      scalars.push_back({"eval/perplexity_uncorrected", perplexity(*record.loss_uncorrected)});
  }
  if (!record.subnetwork_loss.empty()) {
    scalars.push_back({"eval/subnetwork_loss", mean(record.subnetwork_loss)});
    scalars.push_back({"eval/subnetwork_accuracy", mean(record.subnetwork_accuracy)});
  }
  return scalars;
}

std::vector<Scalar> scalars_of(const StartRecord&) {
  return {};
}

std::vector<Scalar> scalars_of(const NonfiniteRecord&) {
  return {};
}

std::vector<Scalar> scalars_of(const CheckpointRecord& record) {
  return {{"checkpoint/save_s", record.save_s}};
}

}  // namespace sdp
