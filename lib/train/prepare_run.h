#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/device_loader.h"
#include "engine/engines.h"
#include "experiment/run_steps.h"
#include "run/records.h"
#include "run/run_data.h"
#include "run/run_output.h"
#include "run/save_checkpoint.h"
#include "run/shared_run_folder.h"

namespace sdp {

/// What a process of a run has before its first step.
struct PreparedRun {
  const Experiment& experiment;
  Communicator& comm;
  const SharedRunFolder& shared;
  RunConsole& console;
  RunData data = {};
  std::unique_ptr<DeviceDataset> train_source = {};
  std::unique_ptr<DeviceDataset> test_source = {};
  std::optional<double> peak_flops_per_s = {};  ///< of all processes' devices, where it is known
  std::unique_ptr<OwnedEngines> engines = {};   ///< with the values of `step`
  RunSteps steps = {};
  int64_t step = 0;              ///< steps done before this part of the run
  bool is_resumed = false;       ///< from a checkpoint
  bool owes_evaluation = false;  ///< `step` was not evaluated: the run was stopped during its evaluation
  int64_t skipped_steps = 0;
  std::unique_ptr<DeviceLoader> loader = {};  ///< null if there are no steps left
  // Rank 0 only, and only if there is work to do.
  RunDescription description = {};
  StartRecord record = {};
  int64_t kept_metrics_lines = 0;  ///< metrics lines of earlier parts of the run

  bool has_steps() const { return step < steps.length.total_steps; }
  /// Whether there are steps or an interrupted evaluation left.
  bool has_work() const { return has_steps() || owes_evaluation; }
};

/// Opens the data, makes the engine, and initializes its values or, depending on `resume`, restores them. If
/// there is work to do, cuts metrics and trace back to the checkpoint, which rank 0 finds and verifies.
/// Throws the errors of open_run_data(), restore() and check_data(). Collective. The arguments must outlive
/// the result.
PreparedRun prepare_run(const Experiment& experiment, Communicator& comm, const SharedRunFolder& shared,
                        RunConsole& console, Resume resume);

}  // namespace sdp
