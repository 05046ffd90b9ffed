#include "study/measures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace sdp {
namespace {

using Q = Quantity;
using C = Comparison;
using D = Detail;

constexpr auto kInfos = std::to_array<MeasureInfo>({
    {&Measures::accuracy, "accuracy", "accuracy", Q::kShare, C::kDifference},
    {&Measures::accuracy_uncorrected, "accuracy_uncorrected", "uncorrected", Q::kShare},
    {&Measures::loss, "loss_nats", "loss", Q::kLoss, C::kDifference},
    {&Measures::loss_uncorrected, "loss_uncorrected_nats", "uncorrected loss", Q::kLoss},
    {&Measures::subnetwork_mean, "subnetwork_accuracy_mean", "subnetworks", Q::kShare},
    {&Measures::subnetwork_min, "subnetwork_accuracy_min", "lowest", Q::kShare, C::kNone, D::kDocument},
    {&Measures::subnetwork_max, "subnetwork_accuracy_max", "highest", Q::kShare, C::kNone, D::kDocument},
    {&Measures::steps, "steps", "steps", Q::kWhole},
    {&Measures::epochs, "epochs", "epochs", Q::kNumber, C::kNone, D::kDocument},
    {&Measures::training_flops, "training_flops", "FLOPs", Q::kCount, C::kRatio},
    {&Measures::peak_memory_bytes, "peak_memory_bytes", "peak memory", Q::kBytes, C::kRatio},
    {&Measures::peak_memory_per_worker_bytes, "peak_memory_per_worker_bytes", "per worker", Q::kBytes,
     C::kNone, D::kDocument},
    {&Measures::peak_activations_bytes, "peak_activations_bytes", "activations", Q::kBytes, C::kNone,
     D::kFile},
    {&Measures::peak_weights_bytes, "peak_weights_bytes", "weights", Q::kBytes, C::kNone, D::kFile},
    {&Measures::peak_gradients_bytes, "peak_gradients_bytes", "gradients", Q::kBytes, C::kNone, D::kFile},
    {&Measures::peak_optimizer_bytes, "peak_optimizer_bytes", "optimizer", Q::kBytes, C::kNone, D::kFile},
    {&Measures::peak_buckets_bytes, "peak_buckets_bytes", "buckets", Q::kBytes, C::kNone, D::kFile},
    {&Measures::step_ms, "step_ms", "step", Q::kMilliseconds, C::kRatio},
    {&Measures::samples_per_s, "samples_per_s", "samples/s", Q::kCount},
    {&Measures::sent_bytes_per_step, "sent_bytes_per_step", "sent/step", Q::kBytes, C::kRatio},
    {&Measures::largest_parameters, "largest_worker_parameters", "parameters", Q::kCount},
});

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void add_evaluation(Measures& measures, const EvalRecord& record) {
  measures.accuracy = record.accuracy;
  measures.loss = record.loss;
  measures.accuracy_uncorrected = record.accuracy_uncorrected.value_or(Measures::kUnknown);
  measures.loss_uncorrected = record.loss_uncorrected.value_or(Measures::kUnknown);
  const std::vector<double>& single = record.subnetwork_accuracy;
  if (single.empty()) return;
  measures.subnetwork_mean = mean(single);
  measures.subnetwork_min = *std::min_element(single.begin(), single.end());
  measures.subnetwork_max = *std::max_element(single.begin(), single.end());
}

/// The line and process of the largest sum over kinds. Lines whose lists differ in length have no sum.
void add_memory(Measures& measures, const Run& run) {
  double peak = 0;
  for (const TrainRecord& record : run.train) {
    const MemoryRecord& memory = record.memory;
    const size_t ranks =
        std::min({memory.activations_bytes.size(), memory.weights_bytes.size(), memory.gradients_bytes.size(),
                  memory.optimizer_bytes.size(), memory.buckets_bytes.size()});
    for (size_t rank = 0; rank < ranks; ++rank) {
      const std::array<double, 5> kinds = {
          static_cast<double>(memory.activations_bytes[rank]),
          static_cast<double>(memory.weights_bytes[rank]), static_cast<double>(memory.gradients_bytes[rank]),
          static_cast<double>(memory.optimizer_bytes[rank]), static_cast<double>(memory.buckets_bytes[rank])};
      const double sum = std::accumulate(kinds.begin(), kinds.end(), 0.0);
      if (sum <= peak) continue;
      peak = sum;
      const double slots =
          static_cast<double>(run.plan.workers * run.spec.subnetwork.replicas) / static_cast<double>(ranks);
      measures.peak_memory_bytes = sum;
      measures.peak_memory_per_worker_bytes = sum / std::max(slots, 1.0);
      measures.peak_activations_bytes = kinds[0];
      measures.peak_weights_bytes = kinds[1];
      measures.peak_gradients_bytes = kinds[2];
      measures.peak_optimizer_bytes = kinds[3];
      measures.peak_buckets_bytes = kinds[4];
    }
  }
}

double sent_bytes(const TrainRecord& record) {
  const auto& [reduce, publish] = std::tie(record.exchange.reduce_bytes, record.exchange.publish_bytes);
  if (reduce.empty() || reduce.size() != publish.size()) return Measures::kUnknown;
  const int64_t sum = std::accumulate(reduce.begin(), reduce.end(), int64_t{0}) +
                      std::accumulate(publish.begin(), publish.end(), int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(reduce.size());
}

}  // namespace

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return Measures::kUnknown;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Measures measure(const Run& run) {
  Measures measures;
  if (!run.evals.empty()) add_evaluation(measures, run.evals.back());
  const auto steps = static_cast<double>(run.step());
  measures.steps = steps;
  if (run.epochs_per_step() > 0) measures.epochs = steps * run.epochs_per_step();
  measures.training_flops = steps * run.flops_per_step();
  measures.largest_parameters = *std::max_element(run.plan.parameters.begin(), run.plan.parameters.end());
  add_memory(measures, run);
  const size_t first = run.train.size() > 1 ? 1 : 0;
  std::vector<double> step_ms, samples_per_s, sent;
  for (size_t i = first; i < run.train.size(); ++i) {
    step_ms.push_back(run.train[i].step_ms);
    samples_per_s.push_back(run.train[i].samples_per_s);
    sent.push_back(sent_bytes(run.train[i]));
  }
  measures.step_ms = median(std::move(step_ms));
  measures.samples_per_s = median(std::move(samples_per_s));
  measures.sent_bytes_per_step = median(std::move(sent));
  return measures;
}

std::span<const MeasureInfo> measure_infos() {
  return kInfos;
}

}  // namespace sdp
