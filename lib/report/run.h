#pragma once

// A run as recorded in its folder, finished or not.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "plan/figures.h"
#include "telemetry/metrics.h"
#include "telemetry/run_history.h"
#include "telemetry/run_summary.h"

namespace sdp {

struct Run {
  std::filesystem::path dir = {};
  ExperimentSpec spec = {};
  PlanFigures plan = {};
  RunHistory history = {};              ///< no id: a run of an older program, without a history
  std::vector<TrainRecord> train = {};  ///< in the order of metrics.jsonl
  std::vector<EvalRecord> evals = {};
  std::optional<RunSummary> end = {};
  std::string sweep_label = {};  ///< its label in a sweep.json; empty: none

  bool is_finished() const { return end && end->step >= end->total_steps && step() <= end->step; }
  bool is_of_tokens() const { return spec.data.is_of_tokens(); }
  /// The last step in the metrics.
  int64_t step() const;
  /// As recorded by the run or its spec; std::nullopt if that needs a line of the metrics and there is none.
  std::optional<int64_t> total_steps() const;
  int64_t samples_per_step() const;
  /// Over all workers and replicas, from the plan.
  double flops_per_step() const;
  /// Passes over the training set; 0 without a training line.
  double epochs_per_step() const;
};

/// Throws UsageError (spec.yaml) or DataError (other files) with the file that cannot be read, and the line
/// for metrics.jsonl. A last line that was cut off is ignored, as the run may still be writing it. Without
/// metrics.jsonl there are no records.
Run read_run(const std::filesystem::path& dir);

}  // namespace sdp
