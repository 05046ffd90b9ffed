#pragma once

// The out-of-memory message: what did not fit, and which settings reduce memory.

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace sdp {

/// Whether the error is a failed tensor allocation, on the device or on the host.
bool is_out_of_memory(const std::exception& error);

/// Message for the user: what `rank` could not allocate, the peak of its tensors in total and by kind, what
/// the plan predicts, and which settings reduce memory. Needs little memory itself.
std::string describe_out_of_memory(const std::exception& error, int rank, int64_t planned_bytes,
                                   c10::Device device);

}  // namespace sdp
