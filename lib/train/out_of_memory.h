#pragma once

// The error that users of large models see most: what did not fit, and what needs less.

#include <c10/core/Device.h>

#include <exception>
#include <optional>
#include <string>

#include "experiment/experiment.h"

namespace sdp {

/// Whether an allocation of a tensor failed, on the device or on the host.
bool is_out_of_memory(const std::exception& error);

/// For the user: what rank `process` could not allocate, what its tensors took at most and by kind, what the
/// plan says, and what needs less memory.
std::string describe_out_of_memory(const std::exception& error, const Experiment& experiment, int process,
                                   c10::Device device);

}  // namespace sdp
