#include "train/memory.h"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include "report/memory.h"

namespace sdp {

int64_t peak_memory_bytes(c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  }
#endif
  (void)device;
  return peak_resident_bytes();
}

}  // namespace sdp
