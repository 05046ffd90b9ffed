#pragma once

// summary.json: totals of a finished run. A run without this file is not finished.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "spec/visit.h"

namespace sdp {

/// Time spent by a run, summed over the lines of metrics.jsonl: all parts of a resumed run, without steps
/// that were lost and repeated.
struct RunTimes {
  double train_s = 0;  ///< steps, without evaluation and saving
  double eval_s = 0;
  double save_s = 0;
  double data_s = 0;  ///< opening the data sets, once per part

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("train_s", &RunTimes::train_s, kOrDefault);
    field("eval_s", &RunTimes::eval_s, kOrDefault);
    field("save_s", &RunTimes::save_s, kOrDefault);
    field("data_s", &RunTimes::data_s, kOrDefault);
  }
  bool operator==(const RunTimes&) const = default;
};
static_assert(lists_every_member<RunTimes>());

/// All 0 if the file does not exist. Throws DataError with the number of a line that is not valid.
RunTimes times_of_run(const std::filesystem::path& metrics);

struct RunSummary {
  int64_t step = 0;         ///< steps done
  int64_t total_steps = 0;  ///< planned number of steps
  int64_t samples_per_step = 0;
  double epochs = 0;  ///< passes over the training set, after scaling by train.budget
  int64_t processes = 0;
  int64_t threads_per_process = 0;
  std::string device = {};    ///< as the run named it when it began
  std::string version = {};   ///< of sdp-train
  int64_t skipped_steps = 0;  ///< train.on_nonfinite: skip; 0 if the run did not record it
  // Of the assembled model, from the last evaluation on test data.
  std::optional<double> loss = {};
  std::optional<double> accuracy = {};
  std::optional<double> perplexity = {};  ///< for a language model
  RunTimes times = {};                    ///< all 0 if the run did not record them

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("step", &RunSummary::step, kRequired);
    field("total_steps", &RunSummary::total_steps, kRequired);
    field("samples_per_step", &RunSummary::samples_per_step, kRequired);
    field("epochs", &RunSummary::epochs, kRequired);
    field("processes", &RunSummary::processes, kRequired);
    field("threads_per_process", &RunSummary::threads_per_process, kRequired);
    field("device", &RunSummary::device, kRequired);
    field("version", &RunSummary::version, kRequired);
    field("skipped_steps", &RunSummary::skipped_steps);
    field("loss", &RunSummary::loss);
    field("accuracy", &RunSummary::accuracy);
    field("perplexity", &RunSummary::perplexity);
    field(kInline, &RunSummary::times);
  }
  bool operator==(const RunSummary&) const = default;
};
static_assert(lists_every_member<RunSummary>());

/// Replaces the file atomically. Throws DataError.
void write_summary(const std::filesystem::path& path, const RunSummary& summary);

/// std::nullopt if the file does not exist. Throws DataError if it cannot be read or lacks a key.
std::optional<RunSummary> read_summary(const std::filesystem::path& path);

}  // namespace sdp
