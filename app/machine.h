#pragma once

#include <string>

#include "experiment/spec/train_spec.h"
#include "forecast/compute_time.h"
#include "forecast/device_profile.h"

namespace sdp {

/// A machine to forecast for, and the time of operations on it.
struct Machine {
  DeviceProfile device;
  CallTimes times;
};

/// `name`: of a device in forecast/device_profile.h, "measure" (this machine), or a file that doctor --save
/// wrote. Throws UsageError or DataError.
Machine machine_of(const std::string& name, const TrainSpec& train);

}  // namespace sdp
