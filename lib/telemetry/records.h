#pragma once

// What the lines of metrics.jsonl and trace.jsonl say. Each record has one list of its fields (fields.h).

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/kinds.h"
#include "telemetry/field_value.h"
#include "telemetry/fields.h"

namespace sdp {

inline constexpr FieldOptions kStepField = {.quantity = Quantity::kWhole, .is_required = true};

/// What is measured at every line, so that the median over them counts; TensorBoard shows it. `title`: of its
/// column in `report`, where it has one.
constexpr FieldOptions measured(Quantity quantity, std::string_view title = {},
                                Detail detail = Detail::kDocument,
                                Comparison comparison = Comparison::kNone) {
  return {.quantity = quantity,
          .over_lines = OverLines::kMedian,
          .is_scalar = true,
          .title = title,
          .comparison = comparison,
          .detail = detail};
}

/// What a process spent on exchanges, a step.
struct ExchangeRecord {
  int64_t reduce_bytes = 0;  ///< gradients sent to other processes
  /// New values sent; without optimizer.shard none: reduce_bytes has it all.
  int64_t publish_bytes = 0;
  double reduce_ms = 0;  ///< some exchange of gradients was under way
  double publish_ms = 0;
  double reduce_wait_ms = 0;  ///< nothing but waiting for one was done
  double publish_wait_ms = 0;
  double busy_ms = 0;  ///< the step without waiting for exchanges and data

  template <class Field>
  static constexpr void fields(Field& field) {
    field("reduce_bytes", &ExchangeRecord::reduce_bytes, {.quantity = Quantity::kBytes});
    field("publish_bytes", &ExchangeRecord::publish_bytes, {.quantity = Quantity::kBytes});
    field("reduce_ms", &ExchangeRecord::reduce_ms, {.quantity = Quantity::kMilliseconds});
    field("publish_ms", &ExchangeRecord::publish_ms, {.quantity = Quantity::kMilliseconds});
    field("reduce_wait_ms", &ExchangeRecord::reduce_wait_ms, {.quantity = Quantity::kMilliseconds});
    field("publish_wait_ms", &ExchangeRecord::publish_wait_ms, {.quantity = Quantity::kMilliseconds});
    field("busy_ms", &ExchangeRecord::busy_ms, {.quantity = Quantity::kMilliseconds});
  }
  bool operator==(const ExchangeRecord&) const = default;
};
static_assert(lists_every_member<ExchangeRecord>());

/// The parts of a step by what the process computes, on CUDA by when the device does (train/step_clock.h). A
/// pass contains the waits for exchanges that fall into it; ExchangeRecord has all waits.
struct TimeRecord {
  double forward_ms = 0;   ///< with the loss
  double backward_ms = 0;  ///< with packing and adding up of gradients that go out during it
  double optimizer_ms = 0;

  template <class Field>
  static constexpr void fields(Field& field) {
    field("forward_ms", &TimeRecord::forward_ms, measured(Quantity::kMilliseconds, "forward", Detail::kFile));
    field("backward_ms", &TimeRecord::backward_ms,
          measured(Quantity::kMilliseconds, "backward", Detail::kFile));
    field("optimizer_ms", &TimeRecord::optimizer_ms,
          measured(Quantity::kMilliseconds, "optimizer's update", Detail::kFile));
  }
  bool operator==(const TimeRecord&) const = default;
};
static_assert(lists_every_member<TimeRecord>());

/// Tensors of a process by kind, when the most of them stood.
struct MemoryRecord : MemoryByKind {
  template <class Field>
  static constexpr void fields(Field& field) {
    for (const MemoryKindInfo& kind : kMemoryKinds)
      field(kind.bytes_key, static_cast<int64_t MemoryRecord::*>(kind.bytes), {.quantity = Quantity::kBytes});
  }
  bool operator==(const MemoryRecord&) const = default;
};
static_assert(lists_every_member<MemoryRecord>());

/// Of a process, or of all, combined as the list says (combine() in fields.h).
struct ProcessRecord {
  /// How long a step waited for its batches. On CUDA the host's wait: while the device still has work queued
  /// it costs nothing.
  double data_wait_ms = 0;
  int64_t skipped_samples = 0;            ///< damaged images since the line before (data.on_error: skip)
  int64_t peak_process_memory_bytes = 0;  ///< resident so far, or reserved on the GPU (device/device.h)
  int64_t peak_tensor_memory_bytes = 0;   ///< in the interval: all kinds of MemoryRecord

  template <class Field>
  static constexpr void fields(Field& field) {
    field("data_wait_ms", &ProcessRecord::data_wait_ms,
          {.quantity = Quantity::kMilliseconds,
           .over_lines = OverLines::kMedian,
           .over_processes = OverProcesses::kMax,
           .is_scalar = true,
           .title = "data wait",
           .detail = Detail::kFile});
    field("skipped_samples", &ProcessRecord::skipped_samples,
          {.quantity = Quantity::kWhole, .over_processes = OverProcesses::kSum});
    field("peak_process_memory_bytes", &ProcessRecord::peak_process_memory_bytes,
          {.quantity = Quantity::kBytes,
           .over_lines = OverLines::kMax,
           .over_processes = OverProcesses::kMax,
           .is_scalar = true});
    field("peak_tensor_memory_bytes", &ProcessRecord::peak_tensor_memory_bytes,
          {.quantity = Quantity::kBytes,
           .over_lines = OverLines::kMax,
           .over_processes = OverProcesses::kMax,
           .is_scalar = true});
  }
};
static_assert(lists_every_member<ProcessRecord>());

/// Averages since the line before, at the logging interval.
struct TrainRecord {
  static constexpr std::string_view kKind = "train";

  int64_t step = 0;
  double epoch = 0;
  double loss = 0;  ///< averaged over the workers
  /// Share of the training images that a worker's subnetwork put into the class of their label, augmented as
  /// they were trained on and before the step that they are of: subnetworks that go on learning, not the
  /// assembled model. Not of mixed images (mixup, cutmix), nor of tokens.
  std::optional<double> accuracy = {};
  double lr = 0;
  double samples_per_s = 0;  ///< of all workers together
  /// Training FLOPs of the subnetworks by the plan, of all workers together; what is computed again for
  /// train.checkpoint_activations does not count.
  double flops_per_s = 0;
  /// flops_per_s as a share of the peak of all processes' devices by the data sheet
  /// (forecast/device_profile.h). Left out where that is not known.
  std::optional<double> utilization = {};
  double step_ms = 0;
  ProcessRecord processes = {};  ///< of all
  int64_t bytes_sent = 0;        ///< by rank 0, a step
  /// Share of the exchanges' time during which something else was done; null where there were none.
  double overlap = 0;
  int64_t slowest_rank = 0;  ///< the largest busy_ms
  ByRank<ExchangeRecord> exchange = {};
  ByRank<TimeRecord> times = {};
  ByRank<MemoryRecord> memory = {};

  /// How long a step waited for exchanges, mean over the processes.
  double exchange_wait_ms() const {
    return number_of_ranks(exchange, &ExchangeRecord::reduce_wait_ms, OverProcesses::kMean) +
           number_of_ranks(exchange, &ExchangeRecord::publish_wait_ms, OverProcesses::kMean);
  }

  template <class Field>
  static constexpr void fields(Field& field) {
    field("step", &TrainRecord::step, kStepField);
    field("epoch", &TrainRecord::epoch, {.is_scalar = true});
    field("loss", &TrainRecord::loss, {.quantity = Quantity::kLoss, .is_scalar = true});
    field("accuracy", &TrainRecord::accuracy, {.quantity = Quantity::kShare, .is_scalar = true});
    field("lr", &TrainRecord::lr, {.is_scalar = true});
    field("samples_per_s", &TrainRecord::samples_per_s,
          measured(Quantity::kCount, "samples/s", Detail::kTerminal));
    field("flops_per_s", &TrainRecord::flops_per_s, measured(Quantity::kCount, "FLOP/s"));
    field("utilization", &TrainRecord::utilization, measured(Quantity::kShare, "utilization"));
    field("step_ms", &TrainRecord::step_ms,
          measured(Quantity::kMilliseconds, "step time", Detail::kTerminal, Comparison::kRatio));
    field(kInline, &TrainRecord::processes);
    field("bytes_sent", &TrainRecord::bytes_sent, measured(Quantity::kBytes));
    field("overlap", &TrainRecord::overlap, measured(Quantity::kShare));
    field("slowest_rank", &TrainRecord::slowest_rank, {.quantity = Quantity::kWhole});
    field("exchange_wait_ms", &TrainRecord::exchange_wait_ms,
          measured(Quantity::kMilliseconds, "exchange wait"));
    field("exchange", &TrainRecord::exchange);
    field("times", &TrainRecord::times);
    field("memory", &TrainRecord::memory);
  }
};
static_assert(lists_every_member<TrainRecord>());

/// Time of an evaluation as rank 0 sees it, and of its parts.
struct EvalTimes {
  double eval_s = 0;         ///< all of it
  double assemble_s = 0;     ///< fetching the assembled model's values; eval.mode streamed: not the branches'
  double recalibrate_s = 0;  ///< BatchNorm recalibration
  double evaluate_s = 0;     ///< the assembled model on the test set, with corrections and without
  double subnetworks_s = 0;  ///< single subnetworks on the test set

  template <class Field>
  static constexpr void fields(Field& field) {
    field("eval_s", &EvalTimes::eval_s, {.quantity = Quantity::kSeconds, .is_scalar = true});
    field("assemble_s", &EvalTimes::assemble_s, {.quantity = Quantity::kSeconds});
    field("recalibrate_s", &EvalTimes::recalibrate_s, {.quantity = Quantity::kSeconds});
    field("evaluate_s", &EvalTimes::evaluate_s, {.quantity = Quantity::kSeconds});
    field("subnetworks_s", &EvalTimes::subnetworks_s, {.quantity = Quantity::kSeconds});
  }
};
static_assert(lists_every_member<EvalTimes>());

/// Losses of the assembled model on training samples with either branch scale, of which the lower one decides
/// (eval.branch_scale: auto).
struct BranchScaleTrial {
  int64_t samples = 0;
  double loss_none = 0;      ///< branch scale 1
  double loss_survival = 0;  ///< the coverage

  template <class Field>
  static constexpr void fields(Field& field) {
    field("samples", &BranchScaleTrial::samples, {.quantity = Quantity::kWhole});
    field("loss_none", &BranchScaleTrial::loss_none, {.quantity = Quantity::kLoss});
    field("loss_survival", &BranchScaleTrial::loss_survival, {.quantity = Quantity::kLoss});
  }
};
static_assert(lists_every_member<BranchScaleTrial>());

/// exp of the loss, a mean cross-entropy in nats.
inline double perplexity_of(double loss) {
  return std::exp(loss);
}

/// The assembled full model on samples of the test set.
struct EvalRecord {
  static constexpr std::string_view kKind = "eval";

  int64_t step = 0;
  double loss = 0;
  double accuracy = 0;       ///< share in 0..1
  int64_t samples = 0;       ///< that were evaluated (eval.max_samples), skipped ones counted
  int64_t test_samples = 0;  ///< of the whole test set
  int64_t tokens = 0;        ///< predicted in `samples`; 0: images, and neither is in the line
  int64_t test_tokens = 0;   ///< of the whole test set
  /// Damaged images that were left out (data.on_error: skip); left out of the line where none.
  int64_t skipped_samples = 0;
  std::optional<double> loss_uncorrected =
      {};  ///< without BatchNorm recalibration and branch scale; unset: no correction
  std::optional<double> accuracy_uncorrected = {};
  // The corrections; left out of the line, as is the trial, where there are none.
  int64_t recalibrated_batches = 0;  ///< training batches that BatchNorm statistics are of; 0: as trained
  double branch_scale = 1;
  std::optional<BranchScaleTrial> branch_scale_trial = {};
  /// Single subnetworks, by worker; empty: not measured, and left out of the line, as is what follows.
  std::vector<double> subnetwork_loss = {};
  std::vector<double> subnetwork_accuracy = {};
  int64_t subnetwork_samples = 0;         ///< that each was evaluated on
  double loss_on_subnetwork_samples = 0;  ///< the assembled model's, on the same samples
  double accuracy_on_subnetwork_samples = 0;
  EvalTimes times = {};

  /// A language model's: the line then has perplexities too.
  bool is_of_tokens() const { return tokens > 0; }
  bool has_skipped() const { return skipped_samples > 0; }
  bool is_corrected() const { return loss_uncorrected.has_value(); }
  bool has_subnetworks() const { return !subnetwork_loss.empty(); }
  double perplexity() const { return perplexity_of(loss); }
  std::optional<double> perplexity_uncorrected() const {
    return loss_uncorrected ? std::optional(perplexity_of(*loss_uncorrected)) : std::nullopt;
  }

  template <class Field>
  static constexpr void fields(Field& field) {
    constexpr FieldOptions kLoss = {.quantity = Quantity::kLoss};
    constexpr FieldOptions kShownLoss = {.quantity = Quantity::kLoss, .is_scalar = true};
    constexpr FieldOptions kShownPerplexity = {.quantity = Quantity::kPerplexity, .is_scalar = true};
    constexpr FieldOptions kShare = {.quantity = Quantity::kShare};
    constexpr FieldOptions kShownShare = {.quantity = Quantity::kShare, .is_scalar = true};
    constexpr FieldOptions kWhole = {.quantity = Quantity::kWhole};
    constexpr auto kOfTokens = &EvalRecord::is_of_tokens;
    constexpr auto kCorrected = &EvalRecord::is_corrected;
    constexpr auto kSubnetworks = &EvalRecord::has_subnetworks;
    field("step", &EvalRecord::step, kStepField);
    field("loss", &EvalRecord::loss, kShownLoss);
    field("perplexity", &EvalRecord::perplexity, kShownPerplexity, kOfTokens);
    field("accuracy", &EvalRecord::accuracy, kShownShare);
    field("samples", &EvalRecord::samples, kWhole);
    field("test_samples", &EvalRecord::test_samples, kWhole);
    field("tokens", &EvalRecord::tokens, kWhole, kOfTokens);
    field("test_tokens", &EvalRecord::test_tokens, kWhole, kOfTokens);
    field("skipped_samples", &EvalRecord::skipped_samples, kWhole, &EvalRecord::has_skipped);
    field("loss_uncorrected", &EvalRecord::loss_uncorrected, kShownLoss);
    field("perplexity_uncorrected", &EvalRecord::perplexity_uncorrected, kShownPerplexity, kOfTokens);
    field("accuracy_uncorrected", &EvalRecord::accuracy_uncorrected, kShownShare);
    field("recalibrated_batches", &EvalRecord::recalibrated_batches, kWhole, kCorrected);
    field("branch_scale", &EvalRecord::branch_scale, {.if_missing = 1}, kCorrected);
    field("branch_scale_trial", &EvalRecord::branch_scale_trial);
    field("subnetwork_loss", &EvalRecord::subnetwork_loss, kShownLoss, kSubnetworks);
    field("subnetwork_accuracy", &EvalRecord::subnetwork_accuracy, kShownShare, kSubnetworks);
    field("subnetwork_samples", &EvalRecord::subnetwork_samples, kWhole, kSubnetworks);
    field("loss_on_subnetwork_samples", &EvalRecord::loss_on_subnetwork_samples, kLoss, kSubnetworks);
    field("accuracy_on_subnetwork_samples", &EvalRecord::accuracy_on_subnetwork_samples, kShare,
          kSubnetworks);
    field(kInline, &EvalRecord::times);
  }
};
static_assert(lists_every_member<EvalRecord>());

/// A part of a run begins, after `step` updates of earlier parts: who wrote the lines up to the next one.
struct StartRecord {
  static constexpr std::string_view kKind = "start";

  int64_t step = 0;
  std::string checkpoint = {};          ///< folder it goes on from; left out of the line where there is none
  double data_s = 0;                    ///< opening the data sets: reading or indexing them
  std::string time = {};                ///< UTC, "2026-11-22T18:30:00Z"
  std::string version = {};             ///< of the program
  std::string job = {};                 ///< SLURM_JOB_ID; left out of the line outside of SLURM
  int64_t job_restarts = 0;             ///< SLURM_RESTART_COUNT; likewise
  std::vector<std::string> hosts = {};  ///< one entry a rank
  std::vector<int64_t> threads = {};    ///< one entry a rank

  bool has_checkpoint() const { return !checkpoint.empty(); }
  bool has_job() const { return !job.empty(); }

  template <class Field>
  static constexpr void fields(Field& field) {
    field("step", &StartRecord::step, kStepField);
    field("checkpoint", &StartRecord::checkpoint, {}, &StartRecord::has_checkpoint);
    field("data_s", &StartRecord::data_s, {.quantity = Quantity::kSeconds});
    field("time", &StartRecord::time);
    field("version", &StartRecord::version);
    field("job", &StartRecord::job, {}, &StartRecord::has_job);
    field("job_restarts", &StartRecord::job_restarts, {}, &StartRecord::has_job);
    field("hosts", &StartRecord::hosts);
    field("threads", &StartRecord::threads);
  }
};
static_assert(lists_every_member<StartRecord>());

/// A checkpoint was saved.
struct CheckpointRecord {
  static constexpr std::string_view kKind = "checkpoint";

  int64_t step = 0;
  double save_s = 0;
  int64_t bytes = 0;  ///< of all processes' files

  template <class Field>
  static constexpr void fields(Field& field) {
    field("step", &CheckpointRecord::step, kStepField);
    field("save_s", &CheckpointRecord::save_s, {.quantity = Quantity::kSeconds, .is_scalar = true});
    field("bytes", &CheckpointRecord::bytes, {.quantity = Quantity::kBytes});
  }
};
static_assert(lists_every_member<CheckpointRecord>());

/// One worker's batches of a step.
struct NonfiniteBatch {
  int64_t rank = 0;
  int64_t worker = 0;
  int64_t replica = 0;
  bool loss_is_finite = false;
  std::vector<int64_t> samples = {};  ///< indices in the data set's file order

  template <class Field>
  static constexpr void fields(Field& field) {
    field("rank", &NonfiniteBatch::rank);
    field("worker", &NonfiniteBatch::worker);
    field("replica", &NonfiniteBatch::replica);
    field("loss_is_finite", &NonfiniteBatch::loss_is_finite);
    field("samples", &NonfiniteBatch::samples);
  }
};
static_assert(lists_every_member<NonfiniteBatch>());

/// A step whose loss or gradient was not finite.
struct NonfiniteRecord {
  static constexpr std::string_view kKind = "nonfinite";

  int64_t step = 0;
  bool skipped = false;                      ///< train.on_nonfinite: skip; otherwise the run ended
  std::vector<int64_t> gradient_ranks = {};  ///< whose share of the averaged gradients was not finite
  /// Those whose loss was not finite; where only the averaged gradient was not, all.
  std::vector<NonfiniteBatch> batches = {};

  template <class Field>
  static constexpr void fields(Field& field) {
    field("step", &NonfiniteRecord::step, kStepField);
    field("skipped", &NonfiniteRecord::skipped);
    field("gradient_ranks", &NonfiniteRecord::gradient_ranks);
    field("batches", &NonfiniteRecord::batches);
  }
};
static_assert(lists_every_member<NonfiniteRecord>());

/// One worker's step. A line of trace.jsonl, where there is nothing else: it has no `kind`.
struct TraceRecord {
  static constexpr std::string_view kKind = {};

  int64_t step = 0;
  int64_t worker = 0;
  int64_t replica = 0;
  double loss = 0;
  std::vector<int64_t> samples = {};  ///< indices in the data set's file order

  template <class Field>
  static constexpr void fields(Field& field) {
    field("step", &TraceRecord::step, kStepField);
    field("worker", &TraceRecord::worker);
    field("replica", &TraceRecord::replica);
    field("loss", &TraceRecord::loss, {.quantity = Quantity::kLoss});
    field("samples", &TraceRecord::samples);
  }
};
static_assert(lists_every_member<TraceRecord>());

}  // namespace sdp
