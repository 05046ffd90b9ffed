#pragma once

// Evaluation on samples of the test set: the assembled full model, with the corrections the spec asks for,
// and single subnetworks. The assembled model's samples are divided over the processes.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/full_model.h"
#include "experiment/experiment.h"
#include "feed/feed.h"
#include "io/on_progress.h"
#include "telemetry/metrics.h"
#include "telemetry/progress_line.h"
#include "telemetry/stopwatch.h"

namespace sdp {

struct EvalResult {
  double loss = 0;          ///< mean cross-entropy over the samples, of tokens over all that are predicted
  double accuracy = 0;      ///< share in 0..1
  int64_t predictions = 0;  ///< images or tokens; damaged images are left out
};

/// Of the evaluated samples in file order, damaged ones left out.
struct Predictions {
  at::Tensor logits;   ///< [N, num_classes] in the compute type
  at::Tensor labels;   ///< [N] int64
  at::Tensor samples;  ///< [N] int64, indices in the test set
};

/// The samples of a test set of this size on which the assembled model is evaluated (eval.max_samples), and
/// those on which every single subnetwork is, which are some of them: the same at every evaluation, for every
/// number of processes.
std::vector<int64_t> samples_to_evaluate(const EvalSpec& spec, int64_t test_size);
std::vector<int64_t> samples_per_subnetwork(const EvalSpec& spec, int64_t test_size);

/// Called with what is wrong with every damaged image that evaluation leaves out.
using OnSkipped = std::function<void(const std::string& message)>;

/// Factor on every branch's output in the assembled model, as the spec asks for; nothing where that is to be
/// tried out (auto). survival: a branch was present in a share C of the subnetworks that trained the rest, so
/// C is its expected output, as in stochastic depth (Huang et al. 2016). 1 under backward masking, where no
/// branch was ever missing, and where no parameter takes a factor (takes_branch_scale).
std::optional<double> fixed_branch_scale(const Experiment& experiment);

/// Training batches that re-estimate BatchNorm statistics; 0 for a model that has none.
int64_t batches_to_recalibrate(const Experiment& experiment);

/// Thrown on all processes of a run that is asked to stop in an evaluation: each leaves it between two
/// batches, and all of them before the same collective.
struct EvaluationStopped {};

/// One evaluation. What is collective may throw EvaluationStopped.
class Evaluator {
 public:
  /// Sources and the line, on which it shows how far it is, must outlive it. `train` is read for BatchNorm
  /// recalibration only.
  Evaluator(const Experiment& experiment, const FeedSource& train, const FeedSource& test, Communicator& comm,
            ProgressLine& line, OnSkipped on_skipped);

  /// Collective. The result with corrections applied and, if there are any, without. The full model keeps its
  /// corrected BatchNorm statistics and branch scale.
  EvalRecord evaluate(FullModel& full_model);
  /// Collective. Adds the single subnetworks to the record, where there are any and the spec wants them to be
  /// evaluated. `workers`: those whose subnetworks this process evaluates, each worker once over all
  /// processes. `subnetwork` gives the i-th of them, to be used before it is called again.
  void add_subnetworks(EvalRecord& record, const std::vector<int>& workers,
                       const std::function<Model&(size_t i)>& subnetwork);
  /// Collective. Gives the full model this branch scale, or the better one of the two where there is none,
  /// and re-estimates its BatchNorm statistics as the spec says. What was tried to find the better one.
  std::optional<BranchScaleTrial> correct(FullModel& full_model, std::optional<double> branch_scale);
  /// With the corrections the full model has. For a single process.
  Predictions predict(FullModel& full_model);

 private:
  /// This process's part of the passes that all processes make together.
  struct Passes {
    int64_t mine;  ///< with a batch
    int64_t all;   ///< streamed branches are collective, so every process makes as many
  };

  /// Binds the full model, all of it or (streamed) branch by branch, and says how to run it.
  ForwardMode bind(Model& model, FullModel& full_model, bool training);
  /// The full model as it is, on samples of `data`. `some`: the part of them whose result is wanted, too.
  struct Results {
    EvalResult all;
    EvalResult some;
  };
  Results run(FullModel& full_model, const std::string& name, const FeedSource& data,
              const std::vector<int64_t>& samples, const std::vector<int64_t>& some = {});
  void recalibrate(FullModel& full_model);
  BranchScaleTrial choose_branch_scale(FullModel& full_model);
  /// Whatever is evaluated or recalibrated, this is the loop over its batches: use(number, batch) with each.
  void for_each_batch(Feed& feed, Passes passes, const ForwardMode& mode, const OnProgress& on_progress,
                      const std::function<void(int64_t number, const TensorBatch& batch)>& use) const;
  void walk_branches(const ForwardMode& mode) const;
  /// Stop points (Communicator::stops_here): before collectives, and where there are none.
  void leave_if_stopped_here() const;
  void leave_if_stopped_within() const;
  EvalBatches batches_of(std::vector<int64_t> samples) const;
  /// The next batch, its damaged samples reported.
  TensorBatch next(Feed& feed) const;
  /// Calls `part`, waits for the device and adds the time it took to `total_s`.
  template <class Part>
  auto timed(double& total_s, Part part) const;
  /// Sums over the batch's predictions: [2, 3] fp64, of all of them and of those of the samples in `some`
  /// (ascending): loss, hits, how many they are.
  at::Tensor sums_of(Model& model, const ForwardMode& mode, const TensorBatch& batch,
                     const std::vector<int64_t>& some) const;
  at::Tensor zero_sums() const;

  const Experiment& experiment_;
  const FeedSource& train_;
  const FeedSource& test_;
  Communicator& comm_;
  ProgressLine& line_;
  OnSkipped on_skipped_;
  Stopwatch since_begin_;
  EvalTimes times_;
  EvalResult on_subnetwork_samples_;  ///< of the assembled model
};

}  // namespace sdp
