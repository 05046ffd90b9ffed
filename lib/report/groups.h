#pragma once

// Runs of one experiment with several seeds, and their label.

#include <cstdint>
#include <string>
#include <vector>

#include "report/run.h"

namespace sdp {

/// Statistics over the known values.
struct Statistic {
  double mean = 0;  ///< NaN if count is 0
  double std = 0;   ///< sample standard deviation (n - 1 in the denominator); NaN if count is below 2
  int64_t count = 0;
};
Statistic statistic(const std::vector<double>& values);

/// Runs that differ only in their seed: the same data, the same initial weights and the same changes during
/// the run.
struct Group {
  std::string data_set;  ///< see data_sets.h
  std::string label;     ///< unique among the groups of a data set
  /// The label without the training budget (train.epochs, train.max_steps): shared by the groups that differ
  /// in nothing else.
  std::string any_budget_label;
  std::string regime;    ///< see experiment/spec/regime.h, method_of
  std::string coverage;  ///< "4/8"; "1" for data parallelism
  /// Changes during the runs: "optimizer.lr 0.1, 0.01 from step 10".
  std::vector<std::string> changes = {};
  std::vector<Run> runs = {};

  size_t unfinished() const;
};

/// Groups by data set, in the order of their first runs. A group is labelled by its regime and coverage and
/// by every key of the spec that differs between the runs of the data set, or by the label that a sweep.json
/// gives to all its runs, followed by the keys in which groups of several sweeps with this label differ. A
/// key that changed during a run is always part of the label; the hash of imported weights is if not all runs
/// have the same. Not compared are the seed, how much is evaluated, and keys that only control where and how
/// often something is written. Settings that follow from the regime in most studies, such as the corrections
/// of the evaluation, are part of a label only if runs with the same regime and coverage differ in them.
std::vector<Group> group_runs(std::vector<Run> runs);

}  // namespace sdp
