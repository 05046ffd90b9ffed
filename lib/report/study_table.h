#pragma once

// Groups of runs compared: one row each, one column a measure. Values stay numbers.

#include <string>
#include <vector>

#include "report/groups.h"
#include "report/measures.h"

namespace sdp {

struct StudyColumn {
  const Measure* measure = nullptr;
  /// kNone: the measure itself; otherwise its mean compared with the baseline's.
  Comparison comparison = Comparison::kNone;
};

struct StudyRow {
  std::string data_set;
  bool is_of_tokens = false;
  std::string label;
  std::string regime;
  std::string coverage;
  std::vector<int64_t> seeds;
  size_t unfinished = 0;  ///< runs
  std::string progress;   ///< of unfinished runs, in words; empty: all are finished
  int64_t processes = 1;
  std::string device;                ///< empty: not known
  std::string imported;              ///< hash of the first weights' file; empty: from scratch
  std::vector<std::string> changes;  ///< Group::changes
  std::vector<Statistic> values;     ///< by column; of comparisons only the mean
};

struct StudyTable {
  std::vector<StudyColumn> columns;
  std::vector<StudyRow> rows;
  std::vector<std::string> baselines;  ///< labels of rows
};

/// Columns that no run has a value of are left out. `baseline`: a group's label, or the beginning of one
/// group's only; empty: none. Rows are compared with the one of their data set, if it has one. Throws
/// UsageError with the labels there are where it names none or several of a data set.
StudyTable make_table(const std::vector<Group>& groups, const std::string& baseline);

}  // namespace sdp
