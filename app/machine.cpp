#include "machine.h"

#include <filesystem>

#include "device/device.h"
#include "forecast/profile_file.h"
#include "measure/call_timer.h"
#include "measure/measure.h"

namespace sdp {
namespace {

Machine this_machine(const TrainSpec& train) {
  const at::Device device = choose_device(train.device, Ranks{});
  use_own_cores();
  return {measure_device(device, train.precision), measured_times(device)};
}

}  // namespace

Machine machine_of(const std::string& name, const TrainSpec& train) {
  if (name == "measure") return this_machine(train);
  const bool is_file = std::filesystem::path(name).extension() == ".json";
  const DeviceProfile device =
      is_file ? read_profile(name, train.precision) : device_profile(name, train.precision);
  return {device, estimated_times(device)};
}

}  // namespace sdp
