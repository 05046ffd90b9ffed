#pragma once

// Street View House Numbers (Netzer et al. 2011, http://ufldl.stanford.edu/housenumbers): 10 classes, the
// digits, as 32 x 32 RGB. Read from the official files of cropped digits (the site's format 2):
// train_32x32.mat, test_32x32.mat and extra_32x32.mat, MAT-files with X, uint8 [32, 32, 3, N], and y, uint8
// [N, 1], in which 10 is the digit 0.

#include <filesystem>

#include "data/sets/image_array.h"

namespace sdp {

/// Reads one split; `with_extra` appends the images of `extra` to those of `train`.
///
/// Every problem goes to `on_problem`. Where that returns, the images that could be read are the result:
/// those in front of damaged data, without those that have a wrong label.
ImageArray read_svhn(const std::filesystem::path& folder, Split split, bool with_extra,
                     const OnProblem& on_problem);

}  // namespace sdp
