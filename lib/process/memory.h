#pragma once

#include <cstdint>

namespace sdp {

/// Resident memory of this process now, and its peak since the process started (VmRSS and VmHWM of
/// /proc/self/status). Includes pages of mapped files. Throw std::runtime_error if the system does not report
/// them.
int64_t resident_bytes();
int64_t peak_resident_bytes();

/// RAM of the machine.
int64_t physical_memory_bytes();

}  // namespace sdp
