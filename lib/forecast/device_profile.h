#pragma once

// What a machine can do, as far as a plan needs to know it.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "subnet/element_type.h"

namespace sdp {

/// Squares in which a product's result is computed on a GPU: the usual size of cuBLAS's tiles (NVIDIA,
/// "Matrix Multiplication Background User's Guide").
inline constexpr int64_t kGpuTileSide = 128;

/// Where the rates of a profile are from.
enum class RatesFrom {
  kDataSheet,     ///< estimated from the device's data sheet
  kSavedProfile,  ///< measured by `doctor`; what operations take is estimated from them
  kThisDevice     ///< measured here, and so is what each operation takes
};
SDP_ENUM_NAMES(RatesFrom, {RatesFrom::kDataSheet, "estimated"}, {RatesFrom::kSavedProfile, "measured rates"},
               {RatesFrom::kThisDevice, "measured"})

/// One device of a machine and its links. Rates are those that a training step reaches, not those of the data
/// sheet.
struct DeviceProfile {
  std::string name;
  RatesFrom rates = RatesFrom::kDataSheet;
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

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &DeviceProfile::name);
    field("times", &DeviceProfile::rates);
    field("flops_per_s", &DeviceProfile::flops_per_s);
    field("tile_side", &DeviceProfile::tile_side);
    field("tiles_at_once", &DeviceProfile::tiles_at_once);
    field("launch_s", &DeviceProfile::launch_s);
    field("copies_together", &DeviceProfile::copies_together);
    field("memory_bytes_per_s", &DeviceProfile::memory_bytes_per_s);
    field("inside_bytes_per_s", &DeviceProfile::inside_bytes_per_s);
    field("between_bytes_per_s", &DeviceProfile::between_bytes_per_s);
    field("memory_bytes", &DeviceProfile::memory_bytes);
    field("allowance_bytes", &DeviceProfile::allowance_bytes);
  }

  int64_t tensor_bytes() const { return memory_bytes - allowance_bytes; }
};

/// "a100", "h100", "h200", "b200": SXM modules, eight to a node.
std::vector<std::string> known_devices();

/// An estimate from the device's data sheet. Throws UsageError that names the known ones.
DeviceProfile device_profile(std::string_view name, Precision precision);

/// What the data sheet says of products in this precision; nothing of a GPU that is not one of the known
/// modules. `gpu_name`: as the driver says, "NVIDIA H100 80GB HBM3".
std::optional<double> data_sheet_flops_per_s(std::string_view gpu_name, Precision precision);

}  // namespace sdp
