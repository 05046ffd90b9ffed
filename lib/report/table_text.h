#pragma once

// A study's table in the formats that people and programs read.

#include <string>

#include "report/study_table.h"

namespace sdp {

/// Means with the sample standard deviation behind them where there are several runs; three digits or so.
/// Each data set has a table of its own, with its name above where there are several. A row of runs whose
/// spec changed on the way has a * and a note below, which says what.
std::string to_text(const StudyTable& table);  ///< aligned columns for a terminal, the most important ones
std::string to_markdown(const StudyTable& table);  ///< GitHub's tables
std::string to_latex(const StudyTable& table);     ///< a tabular for the package booktabs

/// One table with all data sets. `imported`: the XXH3-128 hash of the file that first weights are of, empty
/// where they were drawn. Every measure in full precision: KEY and KEY_std (empty with one run), in the units
/// that their names tell, compared with a baseline KEY_over_baseline (a ratio) or KEY_minus_baseline. Quoted
/// as RFC 4180 says.
std::string to_csv(const StudyTable& table);

}  // namespace sdp
