#pragma once

// Evaluation on samples of the test set: the assembled full model, with the corrections the spec asks for,
// and single subnetworks. The assembled model's samples are divided over the processes.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/eval_record.h"

namespace sdp {

class Communicator;
class DeviceDataset;
class FullModel;
class Model;
class ProgressLine;
struct EvalSpec;
struct Experiment;

/// Test samples on which the assembled model is evaluated (eval.max_samples), and the subset of them on which
/// every single subnetwork is evaluated. Both depend only on the size of the test set: they are the same at
/// every evaluation and for every number of processes.
std::vector<int64_t> samples_to_evaluate(const EvalSpec& spec, int64_t test_size);
std::vector<int64_t> samples_per_subnetwork(const EvalSpec& spec, int64_t test_size);

/// Thrown on all processes if one is asked to stop during an evaluation. Each process leaves the evaluation
/// between two batches, all of them before the same collective.
struct EvaluationStopped {};

/// What an evaluation reads, and what it works with.
struct EvalInputs {
  const Experiment& experiment;
  const DeviceDataset& train;  ///< for the corrections only
  const DeviceDataset& test;
  Communicator& comm;
  ProgressLine& line;
  /// Called with the fault of every damaged image that is left out.
  std::function<void(const std::string& message)> on_skipped;
  /// Folder of the checkpoint with the models' values, where re-estimated statistics are kept; empty if there
  /// is none.
  std::filesystem::path checkpoint = {};
};

struct EvaluatedModels {
  /// Afterwards it has the corrected BatchNorm statistics and branch scale.
  FullModel& full;
  /// Makes the full model of the moving average of the values. It is evaluated with the branch scale of
  /// `full` and BatchNorm statistics of its own. Empty: there is none.
  std::function<std::unique_ptr<FullModel>()> make_average = {};
  /// The workers whose subnetworks this process evaluates; each worker occurs once over all processes.
  std::vector<int> workers = {};
  /// Returns the subnetwork of the i-th of `workers`, which is used only until the next call. Empty on all
  /// processes: subnetworks are not evaluated.
  std::function<Model&(size_t i)> subnetwork = {};
};

/// The result with corrections and, if there are any, also without. The record's step is left to the caller.
/// Collective. May throw EvaluationStopped.
EvalRecord evaluate(const EvalInputs& inputs, const EvaluatedModels& models);

// Corrections of the assembled model: BatchNorm statistics, re-estimated on training batches, and a factor on
// the output of every branch.

/// Factor on every branch's output in the assembled model, as configured; std::nullopt if it is to be chosen
/// by a trial (auto). survival: each branch was present in a share C of the subnetworks that trained the
/// other parameters, so scaling by C gives its expected output, as in stochastic depth (Huang et al. 2016).
/// The factor is 1 under backward masking, where no branch was ever missing, and for models without a
/// parameter that takes a factor (takes_branch_scale).
std::optional<double> fixed_branch_scale(const Experiment& experiment);

/// Number of training batches for re-estimating BatchNorm statistics; 0 for a model without BatchNorm.
int64_t batches_to_recalibrate(const Experiment& experiment);

/// Sets the full model's branch scale to the given one or, without one, to the better of the two on training
/// samples, and re-estimates BatchNorm statistics as configured. Returns the losses of the trial, if there
/// was one. Adds to `times`. Collective. May throw EvaluationStopped.
std::optional<BranchScaleTrial> correct(const EvalInputs& inputs, FullModel& full_model,
                                        std::optional<double> branch_scale, EvalTimes& times);

}  // namespace sdp
