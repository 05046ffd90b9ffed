#pragma once

// The rates and sizes of a machine that a forecast needs: from data sheets, or measured by `doctor`, whose
// file `plan --device FILE` reads.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/field.h"
#include "subnet/element_type.h"

namespace sdp {

/// Side of the square tiles in which a GPU computes the result of a matrix product, in elements: the usual
/// size of cuBLAS's tiles (NVIDIA, "Matrix Multiplication Background User's Guide").
inline constexpr int64_t kGpuTileSide = 128;

/// The source of a profile's rates.
enum class RatesFrom {
  kDataSheet,     ///< estimated from the device's data sheet
  kSavedProfile,  ///< read from a file
  kThisDevice     ///< measured by this process
};
SDP_ENUM_NAMES(RatesFrom, {RatesFrom::kDataSheet, "estimated"}, {RatesFrom::kSavedProfile, "measured rates"},
               {RatesFrom::kThisDevice, "measured"})

/// One device of a machine and its links. The rates are those that a training step reaches, which are lower
/// than those of the data sheet.
struct DeviceProfile {
  std::string name;
  RatesFrom rates = RatesFrom::kDataSheet;
  double flops_per_s = 0;          ///< of large matrix products in the run's precision
  double peak_flops_per_s = 0;     ///< of the data sheet; 0 if that is not known
  int64_t tile_side = 1;           ///< side of the tiles of a product's result, in elements
  int64_t tiles_at_once = 1;       ///< tiles computed in parallel: the number of multiprocessors
  double launch_s = 0;             ///< per kernel, independent of its work
  bool is_gpu = true;              ///< copies contiguous pieces in one launch, and has the kernels of ops/
  double memory_bytes_per_s = 0;   ///< of the device's memory
  double inside_bytes_per_s = 0;   ///< from a process to other processes of its node
  double between_bytes_per_s = 0;  ///< from a process to other nodes
  std::optional<double> latency_s = {};  ///< of a message between processes; unset: 0
  int64_t memory_bytes = 0;              ///< size of the device's memory
  int64_t allowance_bytes = 0;           ///< part of it used by context and communicator
  int64_t library_workspace_bytes = 0;   ///< part of it used by cuBLAS, whatever the step (engine/device.h)
  int64_t convolution_workspace_bytes = 0;  ///< used by cuDNN while a convolution runs; 0: not known

  template <class Visitor>
  static void fields(Visitor& field) {
    constexpr Limits kAboveZero = more_than_and_at_most(0, 1e18), kFromZero = in_range(0, 1e18);
    field("name", &DeviceProfile::name);
    field("times", &DeviceProfile::rates);
    field("flops_per_s", &DeviceProfile::flops_per_s, kAboveZero);
    field("peak_flops_per_s", &DeviceProfile::peak_flops_per_s, kFromZero);
    field("tile_side", &DeviceProfile::tile_side, kAboveZero);
    field("tiles_at_once", &DeviceProfile::tiles_at_once, kAboveZero);
    field("launch_s", &DeviceProfile::launch_s, kFromZero);
    field("is_gpu", &DeviceProfile::is_gpu);
    field("memory_bytes_per_s", &DeviceProfile::memory_bytes_per_s, kAboveZero);
    field("inside_bytes_per_s", &DeviceProfile::inside_bytes_per_s, kAboveZero);
    field("between_bytes_per_s", &DeviceProfile::between_bytes_per_s, kAboveZero);
    field("latency_s", &DeviceProfile::latency_s, kFromZero);
    field("memory_bytes", &DeviceProfile::memory_bytes, kFromZero);
    field("allowance_bytes", &DeviceProfile::allowance_bytes, kFromZero);
    field("library_workspace_bytes", &DeviceProfile::library_workspace_bytes, kFromZero);
    field("convolution_workspace_bytes", &DeviceProfile::convolution_workspace_bytes, kFromZero);
  }

  int64_t tensor_bytes() const { return memory_bytes - allowance_bytes - library_workspace_bytes; }
};

/// "a100", "h100", "h200", "b200": SXM modules, eight to a node. "rtx4090", "a6000", "l40s": PCIe cards.
std::vector<std::string> known_devices();

/// The known device of this name, estimated from its data sheet, or for FILE.json the profile in the file,
/// for a run in this precision. Throws UsageError, which lists the known devices or gives what is wrong with
/// the file.
DeviceProfile device_profile(const std::string& name, Precision precision);

/// The profile of one device in each precision.
using DeviceProfiles = std::map<Precision, DeviceProfile>;
nlohmann::ordered_json to_json(const DeviceProfiles& profiles);
/// Throws nlohmann::json::exception if a field is missing or has the wrong type.
DeviceProfiles profiles_of(const nlohmann::ordered_json& json);
/// The text of the file: the version of its format, and the profiles.
std::string profile_text(const DeviceProfiles& profiles);

/// The data sheet's rate of matrix products in this precision; nullopt for a GPU that is not one of the known
/// modules. `gpu_name`: contains the name reported by the driver, such as "NVIDIA H100 80GB HBM3".
std::optional<double> data_sheet_flops_per_s(std::string_view gpu_name, Precision precision);

}  // namespace sdp
