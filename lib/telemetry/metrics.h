#pragma once

// metrics.jsonl and trace.jsonl: one JSON object a line. Numbers keep every bit; JSON has no NaN and no
// infinity, both are written as null.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/file.h"

namespace sdp {

/// What each process spent on exchanges, a step; one entry a rank.
struct ExchangeRecord {
  std::vector<int64_t> reduce_bytes;  ///< gradients sent to other processes
  std::vector<int64_t>
      publish_bytes;              ///< new values sent (without optimizer.shard none: reduce_bytes has it all)
  std::vector<double> reduce_ms;  ///< some exchange of gradients was under way
  std::vector<double> publish_ms;
  std::vector<double> reduce_wait_ms;  ///< nothing but waiting for one was done
  std::vector<double> publish_wait_ms;
  std::vector<double> busy_ms;  ///< the step without waiting for exchanges and data
};

/// Tensors of each process by kind, when the most of them stood; one entry a rank.
struct MemoryRecord {
  std::vector<int64_t> activations_bytes;  ///< and batches and workspace
  std::vector<int64_t> weights_bytes;
  std::vector<int64_t> gradients_bytes;
  std::vector<int64_t> optimizer_bytes;
  std::vector<int64_t> buckets_bytes;
};

/// Averages since the line before, at the logging interval. `kind` is "train".
struct TrainRecord {
  int64_t step = 0;
  double epoch = 0;
  double loss = 0;  ///< averaged over the workers
  double lr = 0;
  double samples_per_s = 0;  ///< of all workers together
  double step_ms = 0;
  /// How long a step waited for its batches, on the process that waited longest. On CUDA the host's wait:
  /// while the device still has work queued it costs nothing.
  double data_wait_ms = 0;
  int64_t skipped_samples = 0;  ///< damaged images since the line before (data.on_error: skip)
  // Of the process that has most of it.
  int64_t peak_process_memory_bytes = 0;  ///< resident so far, or reserved on the GPU (device/device.h)
  int64_t peak_tensor_memory_bytes = 0;   ///< in the interval: `memory` of a process, all kinds
  int64_t bytes_sent = 0;                 ///< by rank 0, a step
  /// Share of the exchanges' time during which something else was done; null where there were none.
  double overlap = 0;
  int64_t slowest_rank = 0;  ///< the largest busy_ms
  ExchangeRecord exchange = {};
  MemoryRecord memory = {};
};

/// Time of an evaluation as rank 0 sees it, and of its parts.
struct EvalTimes {
  double eval_s = 0;         ///< all of it
  double assemble_s = 0;     ///< fetching the assembled model's values; eval.mode streamed: not the branches'
  double recalibrate_s = 0;  ///< BatchNorm recalibration
  double evaluate_s = 0;     ///< the assembled model on the test set, with corrections and without
  double subnetworks_s = 0;  ///< single subnetworks on the test set
};

/// Losses of the assembled model on training samples with either branch scale, of which the lower one decides
/// (eval.branch_scale: auto).
struct BranchScaleTrial {
  int64_t samples = 0;
  double loss_none = 0;      ///< branch scale 1
  double loss_survival = 0;  ///< the coverage
};

/// The assembled full model on samples of the test set. `kind` is "eval".
struct EvalRecord {
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
};

/// exp of the loss, a mean cross-entropy in nats.
double perplexity(double loss);

/// A part of a run begins, after `step` updates of earlier parts: who wrote the lines up to the next one.
/// `kind` is "start".
struct StartRecord {
  int64_t step = 0;
  std::string checkpoint = {};          ///< folder it goes on from; left out of the line where there is none
  double data_s = 0;                    ///< opening the data sets: reading or indexing them
  std::string time = {};                ///< UTC, "2026-11-22T18:30:00Z"
  std::string version = {};             ///< of the program
  std::string job = {};                 ///< SLURM_JOB_ID; left out of the line outside of SLURM
  int64_t job_restarts = 0;             ///< SLURM_RESTART_COUNT; likewise
  std::vector<std::string> hosts = {};  ///< one entry a rank
  std::vector<int64_t> threads = {};    ///< one entry a rank
};

/// A checkpoint was saved. `kind` is "checkpoint".
struct CheckpointRecord {
  int64_t step = 0;
  double save_s = 0;
  int64_t bytes = 0;  ///< of all processes' files
};

/// One worker's batches of a step.
struct NonfiniteBatch {
  int64_t rank = 0;
  int64_t worker = 0;
  int64_t replica = 0;
  bool loss_is_finite = false;
  std::vector<int64_t> samples = {};  ///< indices in the data set's file order
};

/// A step whose loss or gradient was not finite. `kind` is "nonfinite".
struct NonfiniteRecord {
  int64_t step = 0;
  bool skipped = false;                      ///< train.on_nonfinite: skip; otherwise the run ended
  std::vector<int64_t> gradient_ranks = {};  ///< whose share of the averaged gradients was not finite
  /// Those whose loss was not finite; where only the averaged gradient was not, all.
  std::vector<NonfiniteBatch> batches = {};
};

/// One worker's step. Has no `kind`.
struct TraceRecord {
  int64_t step = 0;
  int64_t worker = 0;
  int64_t replica = 0;
  double loss = 0;
  std::vector<int64_t> samples = {};  ///< indices in the data set's file order
};

/// The line of a record, without its end.
std::string to_json_line(const TrainRecord& record);
std::string to_json_line(const EvalRecord& record);
std::string to_json_line(const StartRecord& record);
std::string to_json_line(const CheckpointRecord& record);
std::string to_json_line(const NonfiniteRecord& record);
std::string to_json_line(const TraceRecord& record);

/// Appends lines to a file; each is with the operating system when append() returns. Throws DataError.
class JsonLines {
 public:
  explicit JsonLines(const std::filesystem::path& path) : file_(path, OutputFile::Mode::kAppend) {}

  template <class Record>
  void append(const Record& record) {
    file_.write(to_json_line(record) + "\n");
    file_.flush();
  }

 private:
  OutputFile file_;
};

/// Keeps the lines with step <= last_step, in their order, and drops a last line that was cut short. Returns
/// how many it keeps. The file is replaced atomically; without a file nothing happens. Throws DataError with
/// the number of a line that is not an object with a step.
int64_t cut_back(const std::filesystem::path& path, int64_t last_step);

/// What the line of an evaluation says that a run goes by.
struct FoundEvaluation {
  double branch_scale = 1;
};

/// Of the last line of an evaluation at this step, if there is such a line and the file. Throws DataError
/// where it cannot be read; lines that are not JSON are passed over.
std::optional<FoundEvaluation> find_evaluation(const std::filesystem::path& path, int64_t step);

}  // namespace sdp
