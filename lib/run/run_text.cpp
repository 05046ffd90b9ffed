#include "run/run_text.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <span>

#include "data/device_loader.h"
#include "engine/device.h"
#include "engine/train_step.h"
#include "process/allocations.h"
#include "spec/units.h"

namespace sdp {
namespace {

std::string perplexity_text(double loss) {
  return fmt::format("{:.2f}", perplexity_of(loss));
}

/// The lowest and the highest value.
template <class Format>
std::string range_text(const std::vector<double>& values, Format format) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{} to {}", format(*low), format(*high));
}

/// Whether a correction changed the model: a trial of the branch scale may keep 1.
bool is_changed_by_corrections(const EvalRecord& record) {
  return record.loss_uncorrected && (record.recalibrated_batches > 0 || record.branch_scale != 1);
}

/// Names the corrections of the evaluation.
std::string corrections_text(const EvalRecord& record) {
  const std::string scale = fmt::format("branch scale {:.4g}", record.branch_scale);
  if (record.recalibrated_batches == 0) return scale;
  return record.branch_scale == 1 ? "BatchNorm recalibration" : "BatchNorm recalibration and " + scale;
}

std::string loss_text(double loss) {
  return fmt::format("{:.4f}", loss);
}

/// If a single subnetwork is better than the assembled model on the same samples (by perplexity for language
/// models, else by accuracy) by more than the standard error, a line that says so; otherwise empty.
std::string better_subnetwork_text(const EvalRecord& record) {
  const bool by_loss = record.is_of_tokens();
  const std::vector<double>& values = by_loss ? record.subnetwork_loss : record.subnetwork_accuracy;
  if (values.empty()) return "";
  const auto best = by_loss ? std::min_element(values.begin(), values.end())
                            : std::max_element(values.begin(), values.end());
  const double assembled =
      by_loss ? record.loss_on_subnetwork_samples : record.accuracy_on_subnetwork_samples;
  const double gain = by_loss ? assembled - *best : *best - assembled;
  if (!(gain > record.subnetwork_standard_error[static_cast<size_t>(best - values.begin())])) return "";
  const auto text = by_loss ? loss_text : format_percent;
  return fmt::format(
      "\nworker {}'s subnetwork is better than the assembled model: {} {} compared with {} on the same "
      "{} "
      "samples",
      best - values.begin(), by_loss ? "loss" : "accuracy", text(*best), text(assembled),
      record.subnetwork_samples);
}

std::string of_images(const EvalRecord& record) {
  const std::string top5 =
      record.accuracy_top5 ? fmt::format(" (top 5: {})", format_percent(*record.accuracy_top5)) : "";
  std::string text =
      fmt::format("accuracy {}{}, loss {:.4f}", format_percent(record.accuracy), top5, record.loss);
  if (is_changed_by_corrections(record))
    text += fmt::format(" (without {}: {}, {:.4f})", corrections_text(record),
                        format_percent(*record.accuracy_uncorrected), *record.loss_uncorrected);
  if (record.accuracy_ema)
    text += fmt::format("; with averaged values: {}, {:.4f}", format_percent(*record.accuracy_ema),
                        *record.loss_ema);
  if (!record.subnetwork_accuracy.empty())
    text += fmt::format("; single subnetworks: accuracy {}, loss {}",
                        range_text(record.subnetwork_accuracy, format_percent),
                        range_text(record.subnetwork_loss, loss_text));
  return text;
}

std::string of_tokens(const EvalRecord& record) {
  std::string text = fmt::format("loss {:.4f}, perplexity {}", record.loss, perplexity_text(record.loss));
  if (is_changed_by_corrections(record))
    text += fmt::format(" (without {}: {:.4f}, {})", corrections_text(record), *record.loss_uncorrected,
                        perplexity_text(*record.loss_uncorrected));
  if (record.loss_ema)
    text += fmt::format("; with averaged values: {:.4f}, {}", *record.loss_ema,
                        perplexity_text(*record.loss_ema));
  if (!record.subnetwork_loss.empty())
    text += fmt::format("; single subnetworks: loss {}, perplexity {}",
                        range_text(record.subnetwork_loss, loss_text),
                        range_text(record.subnetwork_loss, perplexity_text));
  return text;
}

/// The first few numbers, and how many follow.
std::string first_of(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 16;
  const std::span first(numbers.data(), std::min(kMost, numbers.size()));
  const std::string more = numbers.size() > kMost ? fmt::format(" and {} more", numbers.size() - kMost) : "";
  return fmt::format("{}{}", fmt::join(first, ", "), more);
}

/// The first line of the message, without the stack trace.
std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::string kinds_text(const MemoryByKind& memory) {
  std::string text;
  for (const MemoryKindInfo& kind : kMemoryKinds)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind.name, format_bytes(memory.*kind.bytes));
  return text;
}

}  // namespace

std::string describe(const EvalRecord& record) {
  std::string text = fmt::format("step {}: assembled full model: {}", record.step,
                                 record.is_of_tokens() ? of_tokens(record) : of_images(record));
  if (record.on_training_data || record.samples < record.test_samples)
    text += fmt::format("; on {} of {} {} samples", record.samples, record.test_samples,
                        record.on_training_data ? "training" : "test");
  if (record.skipped_samples > 0) text += fmt::format("; without {} damaged images", record.skipped_samples);
  if (record.branch_scale_trial)
    text += fmt::format("\n{}", describe(*record.branch_scale_trial, record.branch_scale));
  return text + better_subnetwork_text(record);
}

std::string describe(const BranchScaleTrial& trial, double branch_scale) {
  return fmt::format(
      "branch scale {:.4g} (eval.branch_scale: auto): the loss on {} training samples is {:.4f} with branch "
      "scale survival and {:.4f} with none{}",
      branch_scale, trial.samples, trial.loss_survival, trial.loss_none,
      trial.is_decided()
          ? ""
          : fmt::format(", which differ by less than the standard error, {:.2g}", trial.standard_error));
}

std::string describe_end(const EvalRecord& last, const EvalRecord& best, const RunTimes& times,
                         int64_t training_bytes, int64_t evaluation_bytes) {
  const auto result = [](const EvalRecord& record) {
    return record.is_of_tokens()
               ? fmt::format("loss {:.4f}, perplexity {}", record.loss, perplexity_text(record.loss))
               : fmt::format("accuracy {}", format_percent(record.accuracy));
  };
  std::string text = fmt::format("finished after step {}: {}", last.step, result(last));
  if (best.step != last.step) text += fmt::format(" (best: {} after step {})", result(best), best.step);
  text += fmt::format("; training took {}, evaluation {}", format_duration(times.train_s),
                      format_duration(times.eval_s));
  if (training_bytes > 0)
    text += fmt::format("; tensors of a process reached {} in training, {} in evaluation",
                        format_bytes(training_bytes), format_bytes(evaluation_bytes));
  return text;
}

std::string describe_start(const Experiment& experiment, const std::string& device) {
  const SubnetPlan& plan = experiment.plan;
  const SlotMap& slot_map = experiment.exchanges.slot_map;
  const NodeMap& nodes = experiment.nodes;
  const std::string on_nodes = nodes.nodes() == 1
                                   ? ""
                                   : fmt::format(", {} nodes of {} (placement {}),", nodes.nodes(),
                                                 nodes.processes_per_node, name_of(nodes.placement));
  const std::optional<int64_t>& every = experiment.spec.exchange.every_steps;
  return fmt::format(
      "{}: {}; {} parameters\n"
      "{} workers, coverage {} ({} construction, {} masking), {} of the FLOPs of the full model{}\n"
      "{} process{}{} on {}, {} worker{} per process, {} replica{}, {}",
      plan.layout.name, sizes_text(experiment.spec.model),
      format_count(static_cast<double>(plan.layout.parameter_count())), plan.workers, coverage_text(plan),
      name_of(plan.construction), masking_text(plan), format_percent(flops_share(plan)),
      every ? fmt::format(", local steps with an exchange after every {}", *every) : "", slot_map.processes,
      slot_map.processes == 1 ? "" : "es", on_nodes, device, slot_map.slots_per_process(),
      slot_map.slots_per_process() == 1 ? "" : "s", slot_map.replicas, slot_map.replicas == 1 ? "" : "s",
      name_of(experiment.spec.train.precision));
}

std::string describe_length(const Experiment& experiment, const RunSteps& steps) {
  const TrainSpec& train = experiment.spec.train;
  const bool is_of_tokens = experiment.spec.data.is_of_tokens();
  const double tokens_per_step =
      is_of_tokens ? static_cast<double>(steps.samples_per_step * experiment.spec.data.sequence_length()) : 0;
  std::string text = fmt::format("{} steps of {} samples", steps.length.total_steps, steps.samples_per_step);
  if (is_of_tokens) text += fmt::format(" ({} tokens)", format_count(tokens_per_step));
  if (train.accumulate_steps > 1) text += fmt::format(" in {} micro-batches", train.accumulate_steps);
  if (is_of_tokens)
    text += fmt::format(", {} tokens in all",
                        format_count(static_cast<double>(steps.samples_after(steps.length.total_steps) *
                                                         experiment.spec.data.sequence_length())));
  text += fmt::format(", {:.4g} epochs", steps.epochs);
  if (!train.max_steps && train.budget != Budget::kEpochs)
    text += fmt::format(" (budget {}: {:.4g} times {:.4g})", name_of(train.budget),
                        steps.epochs / train.epochs, train.epochs);
  return text;
}

std::optional<std::string> slow_precision_warning(Precision precision, c10::Device device) {
  if (precision != Precision::kBf16 || !device.is_cpu()) return std::nullopt;
  const double bf16 = product_rate(at::kBFloat16), fp32 = product_rate(at::kFloat);
  if (bf16 >= fp32) return std::nullopt;
  return fmt::format(
      "bf16 is slow on this CPU: products reach {}FLOP/s, in fp32 {}FLOP/s. To train in fp32, add --set "
      "train.precision=fp32",
      format_count(bf16), format_count(fp32));
}

std::optional<std::string> slow_data_warning(double step_ms, double wait_ms, const DataSpec& data) {
  constexpr double kMostWaiting = 0.2;
  if (wait_ms < kMostWaiting * step_ms) return std::nullopt;
  return fmt::format(
      "the data is the bottleneck: each step of {:.1f} ms waits {:.1f} ms for batches. Raise "
      "data.loader_threads ({}), or data.prefetch_batches ({}) if only some steps wait.",
      step_ms, wait_ms, data.loader_threads, data.prefetch_batches);
}

NonfiniteRecord nonfinite_record(const Experiment& experiment, const RunSteps& steps, int64_t step,
                                 const NonfiniteStep& found, bool skipped) {
  const SlotMap& slot_map = experiment.exchanges.slot_map;
  const int64_t slots_per_process = slot_map.slots_per_process();
  std::vector<size_t> slots = found.slots;
  if (slots.empty()) {  // only the averaged gradient is not finite: the worker is unknown
    slots.resize(static_cast<size_t>(slots_per_process * slot_map.processes));
    std::iota(slots.begin(), slots.end(), size_t{0});
  }
  NonfiniteRecord record{
      .step = step + 1, .skipped = skipped, .gradient_ranks = found.gradient_ranks, .batches = {}};
  for (const size_t number : slots) {
    const int64_t rank = static_cast<int64_t>(number) / slots_per_process;
    const Slot slot =
        slot_map.slots_of(static_cast<int>(rank))[number % static_cast<size_t>(slots_per_process)];
    NonfiniteBatch batch{.rank = rank,
                         .worker = slot.worker,
                         .replica = slot.replica,
                         .loss_is_finite = found.slots.empty(),
                         .samples = {}};
    const TrainingBatches batches{.geometry = batch_geometry(experiment.spec, steps.origin),
                                  .slots = {slot},
                                  .first_step = step,
                                  .last_step = step + 1,
                                  .seed = static_cast<uint64_t>(experiment.spec.seed)};
    for (int64_t i = 0; i < batches.count(); ++i)
      for (const TrainingSample& sample : batches.samples(i, steps.dataset_size))
        batch.samples.push_back(sample.index);
    record.batches.push_back(std::move(batch));
  }
  return record;
}

std::string text_of(const NonfiniteRecord& record) {
  constexpr size_t kMost = 4;
  std::string text = record.batches.front().loss_is_finite ? "the gradient" : "the loss";
  text += fmt::format(" of step {} is not finite:", record.step);
  const size_t shown = std::min(kMost, record.batches.size());
  for (size_t i = 0; i < shown; ++i) {
    const NonfiniteBatch& batch = record.batches[i];
    text += fmt::format("{} worker {}, replica {} (rank {}) on samples {}", i > 0 ? ";" : "", batch.worker,
                        batch.replica, batch.rank, first_of(batch.samples));
  }
  if (shown < record.batches.size()) text += fmt::format("; {} more workers", record.batches.size() - shown);
  return text;
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) || dynamic_cast<const std::bad_alloc*>(&error))
    return true;
  // LibTorch's CPU allocator has no exception type of its own for this.
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch &&
         std::string(of_torch->what_without_backtrace()).find("can't allocate memory") != std::string::npos;
}

std::string describe_out_of_memory(const std::exception& error, int rank, int64_t planned_bytes,
                                   c10::Device device) {
  const MemoryByKind most = allocated_at_peak();
  return fmt::format(
      "Rank {} is out of memory on {} of {}: {}. Its tensors reached {} ({}), in addition to {} of cuBLAS's "
      "workspace; the plan predicts {} of tensors at the peak of a step. To reduce memory, use a smaller "
      "train.batch_size_per_worker with more train.accumulate_steps, train.checkpoint_activations: true, a "
      "lower subnetwork.coverage or fewer workers per process; `sdp-train plan` prints the memory.",
      rank, device_name(device), format_bytes(device_memory_bytes(device)), reason_of(error),
      format_bytes(most.total()), kinds_text(most), format_bytes(library_workspace_bytes(device)),
      format_bytes(planned_bytes));
}

}  // namespace sdp
