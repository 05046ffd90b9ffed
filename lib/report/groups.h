#pragma once

// Runs of one experiment under several seeds, and what to call them.

#include <cstdint>
#include <string>
#include <vector>

#include "report/run.h"

namespace sdp {

/// Over the values that are known.
struct Statistic {
  double mean = 0;  ///< NaN where count is 0
  double std = 0;   ///< of a sample (n - 1 in the denominator); NaN where count is below 2
  int64_t count = 0;
};
Statistic statistic(const std::vector<double>& values);

/// Runs that differ in nothing but their seed: of the same data, from the same first weights, with the same
/// changes on the way.
struct Group {
  std::string data_set;  ///< see data_sets.h
  std::string label;     ///< no two groups of a data set have the same
  std::string regime;    ///< see experiment/spec/regime.h, method_of
  std::string coverage;  ///< "4/8"; "1" of data parallelism
  /// What changed while the runs went on: "optimizer.lr 0.1, 0.01 from step 10".
  std::vector<std::string> changes = {};
  std::vector<Run> runs = {};

  size_t unfinished() const;
};

/// By data set, and below each in the order of their first runs. A group is called by its regime and coverage
/// and by every key of the spec whose value is not the same in all runs of the data set, or as a sweep.json
/// calls all its runs; by a key that changed on the way in any case, and by the hash of the weights that were
/// imported where not all runs have the same. Not compared: the
/// seed, how much is evaluated, and what only says where and how often something is written. Corrections of
/// the evaluation and the like, which follow from the regime in most studies, are in a name only where runs
/// of one regime and coverage differ in them.
std::vector<Group> group_runs(std::vector<Run> runs);

}  // namespace sdp
