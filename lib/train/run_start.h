#pragma once

// Start of a run: from new weights, or from a checkpoint of its folder.

#include <cstdint>
#include <string>

#include "checkpoint/checkpointing.h"
#include "comm/communicator.h"
#include "data/dataset.h"
#include "experiment/spec/experiment_spec.h"
#include "plan/run_steps.h"
#include "telemetry/progress.h"
#include "telemetry/run_folder.h"
#include "telemetry/run_history.h"
#include "train/run_output.h"

namespace sdp {

/// The run's current data sets, to be compared with those of the checkpoint.
struct RunDataIdentity {
  DataIdentity train;
  DataIdentity test;
};

struct RunStart {
  RunSteps steps;
  int64_t step = 0;  ///< steps done before this part of the run
  bool is_resumed = false;
  bool owes_evaluation = false;  ///< `step` was not evaluated: the run was stopped during its evaluation
  int64_t skipped_steps = 0;
  // Rank 0 only, and only if there is work to do.
  std::string checkpoint = {};     ///< folder of the checkpoint that the run resumes from
  int64_t kept_metrics_lines = 0;  ///< metrics lines of earlier parts of the run
  RunHistory history = {};
};

struct RunContext {
  const Experiment& experiment;
  const RunFolder& folder;
  const RunDataIdentity& data;
  int threads = 0;
};

/// Initializes or restores the engine's parameters. If there is work to do, cuts metrics and trace back to
/// the checkpoint, which rank 0 finds and verifies. Throws the errors of restore() and check_data().
/// Collective.
RunStart start_run(const RunContext& run, Engine& engine, Communicator& comm, RunConsole& console,
                   Resume resume);

}  // namespace sdp
