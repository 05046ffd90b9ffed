#pragma once

#include <vector>

namespace sdp {

/// Mean and standard deviation per channel (R, G, B) of pixel values in 0..1, over all pixels of the data
/// set's training images.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

}  // namespace sdp
