#pragma once

#include <c10/core/Device.h>

namespace sdp::ops {

/// Whether this program has the device kernels (CMake's SDP_DEVICE_KERNELS). Without them a device computes
/// the compositions.
bool has_device_kernels();

inline bool has_device_kernels(c10::Device device) {
  return device.is_cuda() && has_device_kernels();
}

}  // namespace sdp::ops
