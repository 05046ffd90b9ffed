#pragma once

// A run as its folder tells of it, finished or not.

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
  RunHistory history = {};              ///< without an id: a run of an older program, which tells nothing
  std::vector<TrainRecord> train = {};  ///< in the order of metrics.jsonl
  std::vector<EvalRecord> evals = {};
  std::optional<RunSummary> end = {};
  std::string sweep_label = {};  ///< what a sweep.json calls it; empty: nothing

  bool is_finished() const { return end && end->step >= end->total_steps && step() <= end->step; }
  bool is_of_tokens() const { return spec.data.is_of_tokens(); }
  /// The last one that the metrics know of.
  int64_t step() const;
  /// As the run itself or its spec says; nothing where that takes a line of the metrics and there is none.
  std::optional<int64_t> total_steps() const;
  int64_t samples_per_step() const;
  /// Of all workers and replicas, by the plan.
  double flops_per_step() const;
  /// Passes over the training set; 0 without a training line.
  double epochs_per_step() const;
};

/// Throws UsageError (spec.yaml) or DataError (the other files) with the file, and the line of metrics.jsonl,
/// that cannot be read. A last line that was cut short is left out, and without metrics.jsonl there are no
/// records: the run goes on.
Run read_run(const std::filesystem::path& dir);

}  // namespace sdp
