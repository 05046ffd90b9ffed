#include "report/measures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace sdp {
namespace {

using Q = Quantity;
using C = Comparison;
using D = Detail;
using M = Models;

constexpr auto kInfos = std::to_array<MeasureInfo>({
    {&Measures::accuracy, "accuracy", "accuracy", Q::kShare, C::kDifference, D::kTerminal, M::kOfImages},
    {&Measures::accuracy_uncorrected, "accuracy_uncorrected", "uncorrected", Q::kShare, C::kNone,
     D::kTerminal, M::kOfImages},
    {&Measures::loss, "loss_nats", "loss", Q::kLoss, C::kDifference, D::kTerminal, M::kOfTokens},
    {&Measures::perplexity, "perplexity", "perplexity", Q::kPerplexity, C::kRatio, D::kTerminal,
     M::kOfTokens},
    {&Measures::loss_uncorrected, "loss_uncorrected_nats", "uncorrected loss", Q::kLoss, C::kNone,
     D::kTerminal, M::kOfTokens},
    {&Measures::perplexity_uncorrected, "perplexity_uncorrected", "uncorrected perplexity", Q::kPerplexity,
     C::kNone, D::kDocument, M::kOfTokens},
    {&Measures::subnetwork_accuracy_mean, "subnetwork_accuracy_mean", "subnetworks", Q::kShare, C::kNone,
     D::kTerminal, M::kOfImages},
    {&Measures::subnetwork_accuracy_min, "subnetwork_accuracy_min", "lowest", Q::kShare, C::kNone,
     D::kDocument, M::kOfImages},
    {&Measures::subnetwork_accuracy_max, "subnetwork_accuracy_max", "highest", Q::kShare, C::kNone,
     D::kDocument, M::kOfImages},
    {&Measures::subnetwork_loss_mean, "subnetwork_loss_mean_nats", "subnetworks' loss", Q::kLoss, C::kNone,
     D::kTerminal, M::kOfTokens},
    {&Measures::subnetwork_loss_min, "subnetwork_loss_min_nats", "lowest loss", Q::kLoss, C::kNone,
     D::kDocument, M::kOfTokens},
    {&Measures::subnetwork_loss_max, "subnetwork_loss_max_nats", "highest loss", Q::kLoss, C::kNone,
     D::kDocument, M::kOfTokens},
    {&Measures::steps, "steps", "steps", Q::kWhole},
    {&Measures::epochs, "epochs", "epochs", Q::kNumber, C::kNone, D::kDocument},
    {&Measures::training_flops, "training_flops", "FLOPs", Q::kCount, C::kRatio},
    {&Measures::peak_tensor_memory_bytes, "peak_tensor_memory_bytes", "tensor memory", Q::kBytes, C::kRatio},
    {&Measures::peak_tensor_memory_per_worker_bytes, "peak_tensor_memory_per_worker_bytes", "per worker",
     Q::kBytes, C::kNone, D::kDocument},
    {&Measures::peak_process_memory_bytes, "peak_process_memory_bytes", "process memory", Q::kBytes, C::kNone,
     D::kDocument},
    {&Measures::peak_activations_bytes, "peak_activations_bytes", "activations", Q::kBytes, C::kNone,
     D::kFile},
    {&Measures::peak_weights_bytes, "peak_weights_bytes", "weights", Q::kBytes, C::kNone, D::kFile},
    {&Measures::peak_gradients_bytes, "peak_gradients_bytes", "gradients", Q::kBytes, C::kNone, D::kFile},
    {&Measures::peak_optimizer_bytes, "peak_optimizer_bytes", "optimizer", Q::kBytes, C::kNone, D::kFile},
    {&Measures::peak_buckets_bytes, "peak_buckets_bytes", "buckets", Q::kBytes, C::kNone, D::kFile},
    {&Measures::step_ms, "step_ms", "step time", Q::kMilliseconds, C::kRatio},
    {&Measures::samples_per_s, "samples_per_s", "samples/s", Q::kCount},
    {&Measures::sent_bytes_per_step, "sent_bytes_per_step", "sent/step", Q::kBytes, C::kRatio},
    {&Measures::largest_parameters, "largest_worker_parameters", "parameters", Q::kCount},
});

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

struct Spread {
  double mean = Measures::kUnknown;
  double min = Measures::kUnknown;
  double max = Measures::kUnknown;
};

Spread spread_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  return {.mean = sum(values) / static_cast<double>(values.size()),
          .min = *std::min_element(values.begin(), values.end()),
          .max = *std::max_element(values.begin(), values.end())};
}

void add_evaluation(Measures& measures, const EvalRecord& record, bool is_of_tokens) {
  measures.accuracy = record.accuracy;
  measures.loss = record.loss;
  measures.accuracy_uncorrected = record.accuracy_uncorrected.value_or(Measures::kUnknown);
  measures.loss_uncorrected = record.loss_uncorrected.value_or(Measures::kUnknown);
  if (is_of_tokens) {
    measures.perplexity = perplexity(measures.loss);
    measures.perplexity_uncorrected = perplexity(measures.loss_uncorrected);
  }
  const Spread accuracies = spread_of(record.subnetwork_accuracy);
  measures.subnetwork_accuracy_mean = accuracies.mean;
  measures.subnetwork_accuracy_min = accuracies.min;
  measures.subnetwork_accuracy_max = accuracies.max;
  const Spread losses = spread_of(record.subnetwork_loss);
  measures.subnetwork_loss_mean = losses.mean;
  measures.subnetwork_loss_min = losses.min;
  measures.subnetwork_loss_max = losses.max;
}

/// Whether the assembled model was evaluated between the line before and this one.
bool has_evaluation(const Run& run, size_t line) {
  const int64_t begin = line == 0 ? 0 : run.train[line - 1].step;
  return std::any_of(run.evals.begin(), run.evals.end(), [&](const EvalRecord& record) {
    return record.step >= begin && record.step < run.train[line].step;
  });
}

/// Tensors of a process by kind.
using Kinds = std::array<double, 5>;

/// Of the process that held most. Lists that differ in length are of no use.
Kinds largest_process(const MemoryRecord& memory) {
  Kinds largest = {};
  const size_t ranks =
      std::min({memory.activations_bytes.size(), memory.weights_bytes.size(), memory.gradients_bytes.size(),
                memory.optimizer_bytes.size(), memory.buckets_bytes.size()});
  for (size_t rank = 0; rank < ranks; ++rank) {
    const Kinds kinds = {
        static_cast<double>(memory.activations_bytes[rank]), static_cast<double>(memory.weights_bytes[rank]),
        static_cast<double>(memory.gradients_bytes[rank]), static_cast<double>(memory.optimizer_bytes[rank]),
        static_cast<double>(memory.buckets_bytes[rank])};
    if (sum(kinds) > sum(largest)) largest = kinds;
  }
  return largest;
}

void add_memory(Measures& measures, const Run& run) {
  int64_t process_bytes = 0;
  for (const TrainRecord& record : run.train)
    process_bytes = std::max(process_bytes, record.peak_process_memory_bytes);
  if (process_bytes > 0) measures.peak_process_memory_bytes = static_cast<double>(process_bytes);
  Kinds with_evaluation = {}, without = {};
  for (size_t line = 0; line < run.train.size(); ++line) {
    const Kinds kinds = largest_process(run.train[line].memory);
    Kinds& largest = has_evaluation(run, line) ? with_evaluation : without;
    if (sum(kinds) > sum(largest)) largest = kinds;
  }
  const Kinds& peak = sum(without) > 0 ? without : with_evaluation;
  if (sum(peak) == 0) return;
  const double slots = static_cast<double>(run.plan.workers * run.spec.subnetwork.replicas) /
                       static_cast<double>(run.plan.processes);
  measures.peak_tensor_memory_bytes = sum(peak);
  measures.peak_tensor_memory_per_worker_bytes = sum(peak) / slots;
  measures.peak_activations_bytes = peak[0];
  measures.peak_weights_bytes = peak[1];
  measures.peak_gradients_bytes = peak[2];
  measures.peak_optimizer_bytes = peak[3];
  measures.peak_buckets_bytes = peak[4];
}

/// Mean over the processes.
double sent_bytes(const ExchangeRecord& exchange) {
  const std::vector<int64_t>& reduce = exchange.reduce_bytes;
  const std::vector<int64_t>& publish = exchange.publish_bytes;
  if (reduce.empty() || reduce.size() != publish.size()) return Measures::kUnknown;
  const int64_t all = std::accumulate(reduce.begin(), reduce.end(), int64_t{0}) +
                      std::accumulate(publish.begin(), publish.end(), int64_t{0});
  return static_cast<double>(all) / static_cast<double>(reduce.size());
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
  if (!run.evals.empty()) add_evaluation(measures, run.evals.back(), run.is_of_tokens());
  const auto steps = static_cast<double>(run.step());
  measures.steps = steps;
  if (run.epochs_per_step() > 0) measures.epochs = steps * run.epochs_per_step();
  measures.training_flops = steps * run.flops_per_step();
  for (const ProcessFigures& worker : run.plan.per_worker)
    measures.largest_parameters =
        std::fmax(measures.largest_parameters, static_cast<double>(worker.parameters));
  add_memory(measures, run);
  const size_t first = run.train.size() > 1 ? 1 : 0;
  std::vector<double> step_ms, samples_per_s, sent;
  for (size_t i = first; i < run.train.size(); ++i) {
    step_ms.push_back(run.train[i].step_ms);
    samples_per_s.push_back(run.train[i].samples_per_s);
    sent.push_back(sent_bytes(run.train[i].exchange));
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
