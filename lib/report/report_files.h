#pragma once

// The folder of a study: tables, figures and a page that shows them.

#include <filesystem>
#include <string>
#include <vector>

#include "report/find_runs.h"
#include "report/groups.h"
#include "report/study_table.h"

namespace sdp {

/// Writes table.md, table.tex, table.csv, every figure as SVG, and report.md, each replaced atomically;
/// creates the folder if it is missing. `found` lists the runs that were left out. Returns the file names.
/// Throws DataError.
std::vector<std::string> write_report(const std::vector<Group>& groups, const StudyTable& table,
                                      const FoundRuns& found, const std::filesystem::path& folder);

}  // namespace sdp
