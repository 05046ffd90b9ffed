#pragma once

// The lines of metrics.jsonl and trace.jsonl. Each record has one list of its fields (spec/visit.h).

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "process/memory_kinds.h"
#include "run/eval_record.h"
#include "spec/visit.h"

namespace sdp {

/// A record per process. In a line it is an object with one list per key.
template <class Record>
struct ByRank {
  std::vector<Record> ranks = {};

  bool operator==(const ByRank&) const = default;
};

/// Mean over the processes; NaN if there are none.
template <class Record, class Number>
double mean_of(const ByRank<Record>& record, Number Record::*member) {
  double sum = 0;
  for (const Record& of_rank : record.ranks)
    sum += static_cast<double>(of_rank.*member);
  return sum / static_cast<double>(record.ranks.size());
}

/// A process's exchanges, per step.
struct ExchangeRecord {
  int64_t reduce_bytes = 0;  ///< gradients sent to other processes
  /// Updated parameters sent by the all-gather; 0 without optimizer.shard, where reduce_bytes includes
  /// everything.
  int64_t gather_bytes = 0;
  double reduce_ms = 0;  ///< an exchange of gradients was in flight
  double gather_ms = 0;
  double reduce_wait_ms = 0;  ///< waiting for an exchange of gradients, with nothing else to do
  double gather_wait_ms = 0;
  double busy_ms = 0;  ///< step time without waiting for exchanges and data

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("reduce_bytes", &ExchangeRecord::reduce_bytes);
    field("publish_bytes", &ExchangeRecord::gather_bytes);
    field("reduce_ms", &ExchangeRecord::reduce_ms);
    field("publish_ms", &ExchangeRecord::gather_ms);
    field("reduce_wait_ms", &ExchangeRecord::reduce_wait_ms);
    field("publish_wait_ms", &ExchangeRecord::gather_wait_ms);
    field("busy_ms", &ExchangeRecord::busy_ms);
  }
  bool operator==(const ExchangeRecord&) const = default;
};
static_assert(lists_every_member<ExchangeRecord>());

/// The parts of a step by what the process computes; on CUDA, by when the device computes it
/// (engine/clocks.h). Each part includes the waits for exchanges that fall into it; ExchangeRecord has all
/// waits.
struct TimeRecord {
  double forward_ms = 0;   ///< including the loss
  double backward_ms = 0;  ///< including packing and accumulating the gradients that are sent during it
  double optimizer_ms = 0;

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("forward_ms", &TimeRecord::forward_ms, kShown);
    field("backward_ms", &TimeRecord::backward_ms, kShown);
    field("optimizer_ms", &TimeRecord::optimizer_ms, kShown);
  }
  bool operator==(const TimeRecord&) const = default;
};
static_assert(lists_every_member<TimeRecord>());

/// A process's tensors by kind, when their total was largest.
struct MemoryRecord : MemoryByKind {
  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    for (const MemoryKindInfo& kind : kMemoryKinds)
      field(kind.bytes_key, kind.bytes);
  }
  bool operator==(const MemoryRecord&) const = default;
};
static_assert(lists_every_member<MemoryRecord>());

/// Of one process, or of all.
struct ProcessRecord {
  /// How long a step waited for its batches. On CUDA this is the host's wait: it costs nothing while the
  /// device has work queued.
  double data_wait_ms = 0;
  int64_t skipped_samples = 0;      ///< damaged images since the previous line (data.on_error: skip)
  int64_t skipped_local_steps = 0;  ///< steps that single workers skipped since then (train.on_nonfinite)
  int64_t peak_process_memory_bytes = 0;  ///< peak so far: resident, or reserved on the GPU (engine/device.h)
  int64_t peak_tensor_memory_bytes = 0;   ///< peak over the interval: all kinds of MemoryRecord

  /// Combines the values with those of another process: the sum of what was skipped, of the others the
  /// largest.
  void add(const ProcessRecord& other) {
    data_wait_ms = std::max(data_wait_ms, other.data_wait_ms);
    skipped_samples += other.skipped_samples;
    skipped_local_steps += other.skipped_local_steps;
    peak_process_memory_bytes = std::max(peak_process_memory_bytes, other.peak_process_memory_bytes);
    peak_tensor_memory_bytes = std::max(peak_tensor_memory_bytes, other.peak_tensor_memory_bytes);
  }

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("data_wait_ms", &ProcessRecord::data_wait_ms, kShown);
    field("skipped_samples", &ProcessRecord::skipped_samples);
    field("skipped_local_steps", &ProcessRecord::skipped_local_steps);
    field("peak_process_memory_bytes", &ProcessRecord::peak_process_memory_bytes, kShown);
    field("peak_tensor_memory_bytes", &ProcessRecord::peak_tensor_memory_bytes, kShown);
  }
};
static_assert(lists_every_member<ProcessRecord>());

/// Averages over the logging interval, that is, since the previous line.
struct TrainRecord {
  static constexpr std::string_view kKind = "train";

  int64_t step = 0;
  double epoch = 0;
  double loss = 0;  ///< mean over the workers
  /// Training accuracy: the share of training images whose label the worker's subnetwork predicts. Measured
  /// on the augmented images, before the update of their step; so it is that of subnetworks while they train,
  /// not of the assembled model. Unset for mixed images (mixup, cutmix) and for tokens.
  std::optional<double> accuracy = {};
  double lr = 0;
  /// Norm of the averaged gradient of the last step, before clipping, in which every unit counts once. Unset
  /// if that step was not applied. With local steps of rank 0's workers: the mean of their norms.
  std::optional<double> gradient_norm = {};
  // With local steps, of the last exchange: root mean square, over the workers, of the distance of a worker's
  // values from the anchor; norms of the owners' mean change and of the update of the anchor.
  std::optional<double> anchor_distance = {};
  std::optional<double> mean_change_norm = {};
  std::optional<double> outer_update_norm = {};
  double samples_per_s = 0;  ///< of all workers together
  // Of language models; lines of images have none of these.
  double tokens_per_s = 0;
  int64_t tokens = 0;  ///< trained on since the beginning of the run
  /// Training FLOP/s of the subnetworks according to the plan, of all workers together: with the second
  /// forward pass of frozen parts (Flops::training_frozen), without recomputation for
  /// train.checkpoint_activations.
  double flops_per_s = 0;
  /// flops_per_s as a share of the peak of all processes' devices according to the data sheet
  /// (cost/device_profile.h). Unset if that is not known.
  std::optional<double> utilization = {};
  double step_ms = 0;
  ProcessRecord processes = {};  ///< combined over all processes
  int64_t bytes_sent = 0;        ///< by rank 0, per step
  /// Share of the exchanges' time that overlapped other work; null if there were no exchanges.
  double overlap = 0;
  int64_t slowest_rank = 0;  ///< rank with the largest busy_ms
  ByRank<ExchangeRecord> exchange = {};
  ByRank<TimeRecord> times = {};
  ByRank<MemoryRecord> memory = {};

  bool is_of_tokens() const { return tokens > 0; }
  double perplexity() const { return perplexity_of(loss); }
  /// How long a step waited for exchanges: mean over the processes.
  double exchange_wait_ms() const {
    return mean_of(exchange, &ExchangeRecord::reduce_wait_ms) +
           mean_of(exchange, &ExchangeRecord::gather_wait_ms);
  }

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("step", &TrainRecord::step, kRequired);
    field("epoch", &TrainRecord::epoch, kShown);
    field("loss", &TrainRecord::loss, kShown);
    field("perplexity", &TrainRecord::perplexity, kShown, &TrainRecord::is_of_tokens);
    field("accuracy", &TrainRecord::accuracy, kShown);
    field("lr", &TrainRecord::lr, kShown);
    field("gradient_norm", &TrainRecord::gradient_norm, kShown);
    field("anchor_distance", &TrainRecord::anchor_distance, kShown);
    field("mean_change_norm", &TrainRecord::mean_change_norm, kShown);
    field("outer_update_norm", &TrainRecord::outer_update_norm, kShown);
    field("samples_per_s", &TrainRecord::samples_per_s, kShown);
    field("tokens_per_s", &TrainRecord::tokens_per_s, kShown, &TrainRecord::is_of_tokens);
    field("tokens", &TrainRecord::tokens, kShown, &TrainRecord::is_of_tokens);
    field("flops_per_s", &TrainRecord::flops_per_s, kShown);
    field("utilization", &TrainRecord::utilization, kShown);
    field("step_ms", &TrainRecord::step_ms, kShown);
    field(kInline, &TrainRecord::processes);
    field("bytes_sent", &TrainRecord::bytes_sent, kShown);
    field("overlap", &TrainRecord::overlap, kShown);
    field("slowest_rank", &TrainRecord::slowest_rank);
    field("exchange_wait_ms", &TrainRecord::exchange_wait_ms, kShown);
    field("exchange", &TrainRecord::exchange);
    field("times", &TrainRecord::times);
    field("memory", &TrainRecord::memory);
  }
};
static_assert(lists_every_member<TrainRecord>());

/// Start of a part of the run, after `step` updates of earlier parts; describes who wrote the lines up to the
/// next StartRecord.
struct StartRecord {
  static constexpr std::string_view kKind = "start";

  int64_t step = 0;
  std::string checkpoint =
      {};                    ///< folder of the checkpoint it resumed from; not in the line if there is none
  double data_s = 0;         ///< time to open the data sets, including reading or indexing them
  std::string time = {};     ///< UTC, "2026-11-22T18:30:00Z"
  std::string version = {};  ///< of sdp-train
  std::string job = {};      ///< SLURM_JOB_ID; not in the line outside of SLURM
  int64_t job_restarts = 0;  ///< SLURM_RESTART_COUNT; not in the line outside of SLURM
  std::vector<std::string> hosts = {};  ///< one entry per rank
  std::vector<int64_t> threads = {};    ///< one entry per rank

  bool has_checkpoint() const { return !checkpoint.empty(); }
  bool has_job() const { return !job.empty(); }

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("step", &StartRecord::step, kRequired);
    field("checkpoint", &StartRecord::checkpoint, &StartRecord::has_checkpoint);
    field("data_s", &StartRecord::data_s);
    field("time", &StartRecord::time);
    field("version", &StartRecord::version);
    field("job", &StartRecord::job, &StartRecord::has_job);
    field("job_restarts", &StartRecord::job_restarts, &StartRecord::has_job);
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
  int64_t bytes = 0;  ///< total size of all processes' files

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("step", &CheckpointRecord::step, kRequired);
    field("save_s", &CheckpointRecord::save_s, kShown);
    field("bytes", &CheckpointRecord::bytes);
  }
};
static_assert(lists_every_member<CheckpointRecord>());

/// One worker's batches in a step.
struct NonfiniteBatch {
  int64_t rank = 0;
  int64_t worker = 0;
  int64_t replica = 0;
  bool loss_is_finite = false;
  std::vector<int64_t> samples = {};  ///< indices in the data set's file order

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
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
  std::vector<int64_t> gradient_ranks = {};  ///< ranks whose shard of the averaged gradients was not finite
  /// The batches whose loss was not finite; all batches if only the averaged gradient was not finite.
  std::vector<NonfiniteBatch> batches = {};

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("step", &NonfiniteRecord::step, kRequired);
    field("skipped", &NonfiniteRecord::skipped);
    field("gradient_ranks", &NonfiniteRecord::gradient_ranks);
    field("batches", &NonfiniteRecord::batches);
  }
};
static_assert(lists_every_member<NonfiniteRecord>());

/// One worker's step: a line of trace.jsonl. It has no `kind`, as the file has no other records.
struct TraceRecord {
  static constexpr std::string_view kKind = {};

  int64_t step = 0;
  int64_t worker = 0;
  int64_t replica = 0;
  double loss = 0;
  std::vector<int64_t> samples = {};  ///< indices in the data set's file order

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("step", &TraceRecord::step, kRequired);
    field("worker", &TraceRecord::worker);
    field("replica", &TraceRecord::replica);
    field("loss", &TraceRecord::loss);
    field("samples", &TraceRecord::samples);
  }
};
static_assert(lists_every_member<TraceRecord>());

}  // namespace sdp
