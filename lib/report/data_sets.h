#pragma once

// Which runs use the same data, wherever it is stored.

#include <string>
#include <vector>

#include "report/run.h"

namespace sdp {

/// A name for the data set of each run, the same for runs with the same data and different for others. Data
/// sets are compared by the contents of their files, or by file names and sizes (DataIdentity), not by their
/// paths. A run without this information, as from older programs, is grouped with the runs that read the same
/// path.
///
/// The name is data.name if that is unique; otherwise the path is added, or else the hash of the training
/// data.
std::vector<std::string> name_data_sets(const std::vector<Run>& runs);

}  // namespace sdp
