#pragma once

// The figures of a study.

#include <string>
#include <vector>

#include "plot/figure.h"
#include "report/groups.h"

namespace sdp {

/// A value at a step of a run, and where it lies on the x axis.
struct CurvePoint {
  int64_t step = 0;
  double x = 0;
  double y = 0;
};

/// Mean of x and y and the standard deviation of y over several runs, at every step that all runs have which
/// came that far.
Series averaged(const std::vector<std::vector<CurvePoint>>& curves);

/// Time of training until the end of a step: `step_ms` of the training lines, each for the steps since the
/// line before; between lines in proportion.
double training_seconds(const Run& run, int64_t step);

struct NamedFigure {
  std::string name;  ///< of its files
  Figure figure;
};

/// Training loss and the assembled model's accuracy (of language models its loss) against steps, FLOPs,
/// epochs (tokens) and time, and the last of it against memory. Each data set has figures of its own, with
/// its name in theirs where there are several.
std::vector<NamedFigure> study_figures(const std::vector<Group>& groups);

}  // namespace sdp
