#include "ops/availability.h"

namespace sdp::ops {

bool has_device_kernels() {
  return false;
}

}  // namespace sdp::ops
