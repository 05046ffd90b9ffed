#pragma once

// Evaluation on the test set: the assembled full model, with the corrections the spec asks for, and single
// subnetworks. The test set is divided over the processes by its samples.

#include "comm/communicator.h"
#include "data/dataset.h"
#include "report/metrics.h"
#include "train/batch.h"
#include "train/experiment.h"
#include "train/full_model.h"

namespace sdp {

struct EvalResult {
  double loss = 0;      ///< mean cross-entropy over the test set
  double accuracy = 0;  ///< share in 0..1
};

/// Factor on every branch's output in the assembled model, as the spec asks for. survival: a branch was
/// present in a share C of the subnetworks that trained the rest, so C is its expected output, as in
/// stochastic depth (Huang et al. 2016). 1 under backward masking, where no branch was ever missing, and
/// where no parameter takes a factor (takes_branch_scale).
double branch_scale_of(const Experiment& experiment);

class Evaluator {
 public:
  /// Data sets must outlive it. `train` is read for BatchNorm recalibration only.
  Evaluator(const Experiment& experiment, const Dataset& train, const Dataset& test, Communicator& comm);

  /// Collective. The result with corrections applied and, if there are any, without. The full model keeps its
  /// corrected BatchNorm statistics and branch scale.
  EvalRecord evaluate(FullModel& full_model);
  /// Collective. Re-estimates BatchNorm statistics as the spec says, at the branch scale the full model has.
  void recalibrate(FullModel& full_model);
  /// Logits of the whole test set in file order, [N, num_classes] in the compute type, with the corrections
  /// the full model has. For a single process.
  at::Tensor logits(FullModel& full_model);
  /// This process's own subnetwork on the whole test set. Not collective.
  EvalResult evaluate_subnetwork(Model& model);

 private:
  /// Binds the full model, all of it or (streamed) branch by branch, and says how to run it.
  ForwardMode bind(Model& model, FullModel& full_model, bool training) const;
  EvalResult run(FullModel& full_model);
  void walk_branches(const ForwardMode& mode) const;
  /// Test samples from `begin` on, one batch.
  TensorBatch test_batch(int64_t begin) const;
  /// Sums over the batch's predictions, and how many those are: [3] fp64.
  at::Tensor summed_loss_and_hits(Model& model, const ForwardMode& mode, int64_t begin) const;
  static EvalResult mean_of(const at::Tensor& sums);

  const Experiment& experiment_;
  const Dataset& train_;
  const Dataset& test_;
  Communicator& comm_;
};

}  // namespace sdp
