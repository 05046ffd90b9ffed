#pragma once

// summary.json: what a run that has reached its end was. A run without it is not at its end.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sdp {

struct RunSummary {
  int64_t step = 0;         ///< updates done
  int64_t total_steps = 0;  ///< those the run was to have
  int64_t samples_per_step = 0;
  double epochs = 0;  ///< passes over the training set, after train.budget scaled them
  int64_t processes = 0;
  int64_t threads_per_process = 0;
  std::string device = {};   ///< as the run named it when it began
  std::string version = {};  ///< of the program

  bool operator==(const RunSummary&) const = default;
};

/// Replaces the file atomically. Throws DataError.
void write_summary(const std::filesystem::path& path, const RunSummary& summary);

/// Nothing where there is no such file. Throws DataError for one that cannot be read, or that lacks a key.
std::optional<RunSummary> read_summary(const std::filesystem::path& path);

}  // namespace sdp
