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
  bool measured = false;           ///< on the device itself; otherwise estimated from its data sheet
  double flops_per_s = 0;          ///< large matrix products in the run's precision
  int64_t tile_side = 1;           ///< a product's result is computed in squares of so many elements
  int64_t tiles_at_once = 1;       ///< as many of them as the device has multiprocessors
  double launch_s = 0;             ///< from one kernel to the next, whatever it does
  bool copies_together = true;     ///< copies of many pieces are one launch (a GPU), or one each
  double memory_bytes_per_s = 0;   ///< of the device's own memory
  double inside_bytes_per_s = 0;   ///< a process sends to others of its node
  double between_bytes_per_s = 0;  ///< to other nodes
  int64_t memory_bytes = 0;        ///< of the device
  int64_t allowance_bytes = 0;     ///< of it, taken by context, communicator and the libraries' workspace

  int64_t tensor_bytes() const { return memory_bytes - allowance_bytes; }
};

/// "a100", "h100", "h200", "b200": SXM modules, eight to a node.
std::vector<std::string> known_devices();

/// An estimate from the device's data sheet. Throws UsageError that names the known ones.
DeviceProfile device_profile(std::string_view name, Precision precision);

}  // namespace sdp
