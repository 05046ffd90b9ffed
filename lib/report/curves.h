#pragma once

// The figures of a study.

#include <string>
#include <vector>

#include "plot/figure.h"
#include "report/groups.h"

namespace sdp {

/// A value at a step of a run, and its position on the x axis.
struct CurvePoint {
  int64_t step = 0;
  double x = 0;
  double y = 0;
};

/// Mean of x and y and standard deviation of y over several runs, at every step that all runs have which got
/// that far.
Series averaged(const std::vector<std::vector<CurvePoint>>& curves);

/// Training time until the end of a step: the sum of `step_ms` of the training lines, each times the number
/// of steps since the previous line; interpolated linearly between lines.
double training_seconds(const Run& run, int64_t step);

struct NamedFigure {
  std::string name;  ///< of its files
  Figure figure;
};

/// Training loss and the assembled model's accuracy (for language models, its loss) against steps, FLOPs,
/// epochs (tokens) and time, the final score against memory, and, if some runs differ only in their budget,
/// the final score against the budget in FLOPs. Each data set has its own figures, with its name in theirs if
/// there are several.
std::vector<NamedFigure> study_figures(const std::vector<Group>& groups);

}  // namespace sdp
