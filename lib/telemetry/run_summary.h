#pragma once

// summary.json: what a run that has reached its end was. A run without it is not at its end.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sdp {

/// What a run spent its time on, summed over the lines of metrics.jsonl: all parts of a resumed run, without
/// the steps that it lost when it was cut.
struct RunTimes {
  double train_s = 0;  ///< steps, without evaluation and saving
  double eval_s = 0;
  double save_s = 0;
  double data_s = 0;  ///< opening the data sets, once a part

  bool operator==(const RunTimes&) const = default;
};

/// All 0 where there is no such file. Throws DataError with the number of a line that is not one of the
/// metrics.
RunTimes times_of_run(const std::filesystem::path& metrics);

struct RunSummary {
  int64_t step = 0;           ///< steps done
  int64_t total_steps = 0;    ///< those the run was to have
  int64_t skipped_steps = 0;  ///< of them, train.on_nonfinite: skip; 0 of a run that did not tell
  int64_t samples_per_step = 0;
  double epochs = 0;  ///< passes over the training set, after train.budget scaled them
  int64_t processes = 0;
  int64_t threads_per_process = 0;
  std::string device = {};   ///< as the run named it when it began
  std::string version = {};  ///< of the program
  RunTimes times = {};       ///< all 0 of a run that did not tell them

  bool operator==(const RunSummary&) const = default;
};

/// Replaces the file atomically. Throws DataError.
void write_summary(const std::filesystem::path& path, const RunSummary& summary);

/// Nothing where there is no such file. Throws DataError for one that cannot be read, or that lacks a key.
std::optional<RunSummary> read_summary(const std::filesystem::path& path);

}  // namespace sdp
