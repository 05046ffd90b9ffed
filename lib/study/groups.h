#pragma once

// Runs of one experiment under several seeds, and what to call them.

#include <cstdint>
#include <string>
#include <vector>

#include "study/run.h"

namespace sdp {

/// Over the values that are known.
struct Statistic {
  double mean = 0;  ///< NaN where count is 0
  double std = 0;   ///< of a sample (n - 1 in the denominator); NaN where count is below 2
  int64_t count = 0;
};
Statistic statistic(const std::vector<double>& values);

/// Runs that differ in nothing but their seed.
struct Group {
  std::string label;     ///< no two groups have the same
  std::string regime;    ///< see spec/regime.h, method_of
  std::string coverage;  ///< "4/8"; "1" of data parallelism
  std::vector<Run> runs;

  size_t unfinished() const;
};

/// In the order of their first runs. A group is called by its regime and coverage and by every key of the
/// spec whose value is not the same in all runs, or as a sweep.json calls all its runs. Not compared: the
/// seed, how much is evaluated, and what only says where and how often something is written. Corrections of
/// the evaluation and the like, which follow from the regime in most studies, are in a name only where runs
/// of one regime and coverage differ in them.
std::vector<Group> group_runs(std::vector<Run> runs);

}  // namespace sdp
