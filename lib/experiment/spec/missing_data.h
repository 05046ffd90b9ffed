#pragma once

// What to do where a data set is not there.

#include <string>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// Which files the data set has, the command that gets them, and how to train on something that is at hand
/// instead: the 5,000 images of CIFAR-10 in examples/data, or tokens made of the documentation. Commands are
/// for the root of the source tree.
std::string missing_data_advice(const ExperimentSpec& spec);

}  // namespace sdp
