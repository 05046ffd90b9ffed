#pragma once

// A study's table in formats for people and programs.

#include <string>

#include "report/study_table.h"

namespace sdp {

/// Means, with the sample standard deviation if there are several runs, to about three digits. Each data set
/// has its own table, with its name above if there are several. A row of runs whose spec changed during
/// training is marked with * and has a note below.
std::string to_text(
    const StudyTable& table);  ///< aligned columns for a terminal, only the most important ones
std::string to_markdown(const StudyTable& table);  ///< GitHub's tables
std::string to_latex(const StudyTable& table);     ///< a tabular for the package booktabs

/// One table with all data sets. `imported`: the XXH3-128 hash of the file of initial weights, empty if they
/// were drawn at random. Every measure is in full precision as KEY and KEY_std (empty for one run), in the
/// unit that its name gives; comparisons with a baseline are KEY_over_baseline (a ratio) or
/// KEY_minus_baseline. Quoted according to RFC 4180.
std::string to_csv(const StudyTable& table);

}  // namespace sdp
