#pragma once

// Times the operators of a step on this machine's device, with their real shapes; `plan --device measure`
// uses these times instead of estimates (forecast/compute_time.h).

#include <c10/core/Device.h>

#include "forecast/compute_time.h"

namespace sdp {

/// Times a call when its time is first requested, with random tensors of its shapes. The fastest of several
/// runs counts, because other activity on the machine only makes runs slower. A large call is timed on fewer
/// samples, and its time is assumed to be proportional to their number.
CallTimes measured_times(c10::Device device);

}  // namespace sdp
