#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace sdp {

/// Most memory this process has used on the device so far: CUDA's caching allocator, or resident memory on a
/// CPU.
int64_t peak_memory_bytes(c10::Device device);

}  // namespace sdp
