#pragma once

// Advice for a missing data set.

#include <string>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// The files that the data set consists of, the command that fetches them, and how to train on data in the
/// source tree instead: the 5,000 images of CIFAR-10 in examples/data, or tokens made from the documentation.
/// The commands are to be run in the root of the source tree.
std::string missing_data_advice(const ExperimentSpec& spec);

}  // namespace sdp
