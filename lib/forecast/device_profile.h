#pragma once

// What a machine can do, as far as a plan needs to know it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/experiment_spec.h"

namespace sdp {

/// One device of a machine and its links. Rates are those that a training step reaches, not those of the data
/// sheet.
struct DeviceProfile {
  std::string name;
  double flops_per_s = 0;          ///< matrix products in the run's precision
  double memory_bytes_per_s = 0;   ///< of the device's own memory
  double inside_bytes_per_s = 0;   ///< a process sends to others of its node
  double between_bytes_per_s = 0;  ///< to other nodes
  int64_t memory_bytes = 0;        ///< of the device
  int64_t allowance_bytes = 0;     ///< of it, taken by context, communicator and the libraries' workspace

  int64_t tensor_bytes() const { return memory_bytes - allowance_bytes; }
};

/// "a100", "h100", "h200": SXM modules, eight to a node.
std::vector<std::string> known_devices();

/// Throws UsageError that names the known ones.
DeviceProfile device_profile(std::string_view name, Precision precision);

}  // namespace sdp
