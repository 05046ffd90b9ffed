#pragma once

// Which runs are of the same data, wherever it lies.

#include <string>
#include <vector>

#include "report/run.h"

namespace sdp {

/// A name for the data set of each run, the same for runs of the same data and for no others: by what its
/// files hold or how they are called and how long they are (DataIdentity), not by where they are. A run that
/// does not tell, as those of older programs, counts as one of the runs that read the same place.
///
/// data.name where that tells the data sets apart, then with the place, then with the hash of its training
/// data.
std::vector<std::string> name_data_sets(const std::vector<Run>& runs);

}  // namespace sdp
