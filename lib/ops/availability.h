#pragma once

namespace sdp::ops {

/// Whether this program has the device kernels (CMake's SDP_DEVICE_KERNELS). Without them a device computes
/// the compositions.
bool has_device_kernels();

}  // namespace sdp::ops
