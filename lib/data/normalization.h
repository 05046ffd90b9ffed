#pragma once

#include <vector>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// Mean and standard deviation per channel (R, G, B) of pixel values in 0..1.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> stddev;
};

/// Over all pixels of the data set's training images: of SVHN without the extra ones, of ImageNet as
/// torchvision has them. std::logic_error for tokens.
const Normalization& normalization_of(DatasetName name);

}  // namespace sdp
