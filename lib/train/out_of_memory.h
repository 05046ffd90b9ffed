#pragma once

// The out-of-memory message: what did not fit, and which settings reduce memory.

#include <c10/core/Device.h>

#include <exception>
#include <optional>
#include <string>

#include "experiment/experiment.h"

namespace sdp {

/// Whether the error is a failed tensor allocation, on the device or on the host.
bool is_out_of_memory(const std::exception& error);

/// Message for the user: what rank `process` could not allocate, the peak of its tensors in total and by
/// kind, what the plan predicts, and which settings reduce memory.
std::string describe_out_of_memory(const std::exception& error, const Experiment& experiment, int process,
                                   c10::Device device);

}  // namespace sdp
