#pragma once

// Evaluation on the test set: the assembled full model, with the corrections the spec asks for, and single
// subnetworks. The test set is divided over the processes by its samples.

#include <functional>
#include <string>

#include "comm/communicator.h"
#include "feed/feed.h"
#include "report/metrics.h"
#include "train/experiment.h"
#include "train/full_model.h"

namespace sdp {

struct EvalResult {
  double loss = 0;      ///< mean cross-entropy over the test set
  double accuracy = 0;  ///< share in 0..1
  int64_t skipped = 0;  ///< damaged samples that were left out
};

/// Of the test set in file order, damaged samples left out.
struct Predictions {
  at::Tensor logits;  ///< [N, num_classes] in the compute type
  at::Tensor labels;  ///< [N] int64
};

/// Called with what is wrong with every damaged image that evaluation leaves out.
using OnSkipped = std::function<void(const std::string& message)>;

/// Factor on every branch's output in the assembled model, as the spec asks for. survival: a branch was
/// present in a share C of the subnetworks that trained the rest, so C is its expected output, as in
/// stochastic depth (Huang et al. 2016). 1 under backward masking, where no branch was ever missing, and
/// where no parameter takes a factor (takes_branch_scale).
double branch_scale_of(const Experiment& experiment);

class Evaluator {
 public:
  /// Sources must outlive it. `train` is read for BatchNorm recalibration only.
  Evaluator(const Experiment& experiment, const FeedSource& train, const FeedSource& test, Communicator& comm,
            OnSkipped on_skipped);

  /// Collective. The result with corrections applied and, if there are any, without. The full model keeps its
  /// corrected BatchNorm statistics and branch scale.
  EvalRecord evaluate(FullModel& full_model);
  /// Collective. Re-estimates BatchNorm statistics as the spec says, at the branch scale the full model has.
  void recalibrate(FullModel& full_model);
  /// With the corrections the full model has. For a single process.
  Predictions predict(FullModel& full_model);
  /// This process's own subnetwork on the whole test set. Not collective.
  EvalResult evaluate_subnetwork(Model& model);

 private:
  /// Binds the full model, all of it or (streamed) branch by branch, and says how to run it.
  ForwardMode bind(Model& model, FullModel& full_model, bool training) const;
  EvalResult run(FullModel& full_model);
  void walk_branches(const ForwardMode& mode) const;
  /// The next batch, its damaged samples reported.
  TensorBatch next(Feed& feed) const;
  /// Sums over the batch's predictions, how many those are, and how many samples were left out: [4] fp64.
  at::Tensor sums_of(Model& model, const ForwardMode& mode, const TensorBatch& batch) const;
  at::Tensor zero_sums() const;
  static EvalResult mean_of(const at::Tensor& sums);

  const Experiment& experiment_;
  const FeedSource& train_;
  const FeedSource& test_;
  Communicator& comm_;
  OnSkipped on_skipped_;
};

}  // namespace sdp
