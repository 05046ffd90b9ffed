#pragma once

// What all images of a data set have in common.

#include <cstdint>
#include <vector>

namespace sdp {

struct ImageShape {
  int64_t channels;
  int64_t height;
  int64_t width;

  int64_t numel() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Mean and standard deviation per channel (R, G, B) of pixel values in 0..1, over all pixels of the data
/// set's training images.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> stddev;
};

}  // namespace sdp
