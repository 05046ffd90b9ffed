#pragma once

// Comparison of groups of runs: one row per group, one column per measure. Values stay numbers.

#include <string>
#include <vector>

#include "report/groups.h"
#include "report/measures.h"

namespace sdp {

struct StudyColumn {
  const Measure* measure = nullptr;
  /// kNone: the measure itself; otherwise the comparison of its mean with the baseline's.
  Comparison comparison = Comparison::kNone;
};

struct StudyRow {
  std::string data_set;
  bool is_of_tokens = false;
  std::string label;
  std::string regime;
  std::string coverage;
  std::vector<int64_t> seeds;
  size_t unfinished = 0;  ///< number of unfinished runs
  std::string progress;   ///< of unfinished runs, as text; empty: all are finished
  int64_t processes = 1;
  std::string device;                ///< empty if not known
  std::string imported;              ///< hash of the initial weights' file; empty: trained from scratch
  std::vector<std::string> changes;  ///< Group::changes
  std::vector<Statistic> values;     ///< by column; comparisons have only the mean
};

struct StudyTable {
  std::vector<StudyColumn> columns;
  std::vector<StudyRow> rows;
  std::vector<std::string> baselines;  ///< labels of the baseline rows
};

/// Columns without any value are left out. `baseline`: a group's label or label without the training budget,
/// or an unambiguous beginning of a label; empty: none. Rows are compared with the baseline of their data
/// set, if it has one. If the baseline has several budgets, rows are compared with the one that has theirs
/// (train.epochs and train.max_steps). Throws UsageError with the existing labels if `baseline` matches no
/// group, or several of one data set.
StudyTable make_table(const std::vector<Group>& groups, const std::string& baseline);

}  // namespace sdp
