#pragma once

#include <cstdint>

namespace sdp {

/// Memory of this process that is in RAM, and the most of it since the process started (VmRSS and VmHWM of
/// /proc/self/status). Pages of mapped files count. Throw std::runtime_error where the system does not tell.
int64_t resident_bytes();
int64_t peak_resident_bytes();

/// RAM of the machine.
int64_t physical_memory_bytes();

}  // namespace sdp
