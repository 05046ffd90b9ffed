#pragma once

// data.validation_share: the samples of a training set that are held out take the place of a test set.

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"

namespace sdp {

/// The samples of one side, ascending: for Split::kTest a share of all samples, at least one, evenly spread
/// over the set, so that sets that are sorted by class lose the same share of each; for Split::kTrain the
/// others. Throws UsageError if a side has no sample.
std::vector<int64_t> samples_of_side(int64_t size, double validation_share, Split side);

/// These samples of a data set as a data set of its own.
std::unique_ptr<Dataset> subset_of(std::unique_ptr<Dataset> whole, std::vector<int64_t> samples);

}  // namespace sdp
