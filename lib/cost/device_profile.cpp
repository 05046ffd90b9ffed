#include "cost/device_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "spec/error.h"
#include "spec/json_fields.h"
#include "spec/text.h"

namespace sdp {
namespace {

/// From NVIDIA's data sheets "A100 80GB SXM", "H100 SXM", "H200 SXM", "HGX B200" (one eighth of the board
/// per GPU), "L40S", "RTX A6000" and the white paper "Ada GPU Architecture" (GeForce RTX 4090). The workspace
/// is that of LibTorch (CublasHandlePool.cpp) for compute capability 8.0 to 8.9, 9.0 and 10.0, once for the
/// forward and once for the backward pass. Product rates are without sparsity and with sums in fp32, link
/// rates are for one direction. The fp32 rates are those without TF32, which is off. The numbers of
/// multiprocessors are from the architecture white papers. The links between nodes are those of NVIDIA's DGX
/// systems: one adapter per device, with 200 Gbit/s for an A100 and 400 Gbit/s for the others. PCIe cards are
/// assumed to have PCIe 4.0 x16 and 10 Gbit/s Ethernet. The memory is what CUDA reports, without what driver
/// and ECC keep: of an H100 as measured, of others as in public logs, the least where drivers differ.
struct DataSheet {
  std::string_view name;
  double bf16_flops_per_s, fp32_flops_per_s, fp64_flops_per_s;
  double memory_bytes_per_s, inside_bytes_per_s, network_bytes_per_s;
  int64_t memory_mib;
  int64_t multiprocessors;
  int64_t library_workspace_bytes;
};
constexpr int64_t kKib = 1024, kMib = 1024 * kKib;
constexpr int64_t kSmallWorkspaceBytes = 2 * (kKib * 2 * 4096 + kKib * 8 * 16);
constexpr int64_t kLargeWorkspaceBytes = kKib * 2 * 8 * 4096;
constexpr std::array<DataSheet, 7> kDataSheets = {{
    {"rtx4090", 165.2e12, 82.6e12, 1.29e12, 1.008e12, 32e9, 1.25e9, 24'084, 128, kSmallWorkspaceBytes},
    {"a6000", 154.8e12, 38.7e12, 0.6e12, 0.768e12, 32e9, 1.25e9, 48'537, 84, kSmallWorkspaceBytes},
    {"l40s", 362e12, 91.6e12, 1.43e12, 0.864e12, 32e9, 1.25e9, 45'455, 142, kSmallWorkspaceBytes},
    {"a100", 312e12, 19.5e12, 19.5e12, 2.04e12, 300e9, 25e9, 81'152, 108, kSmallWorkspaceBytes},
    {"h100", 989e12, 67e12, 67e12, 3.35e12, 450e9, 50e9, 81'079, 132, kLargeWorkspaceBytes},
    {"h200", 989e12, 67e12, 67e12, 4.8e12, 450e9, 50e9, 143'156, 132, kLargeWorkspaceBytes},
    {"b200", 2250e12, 75e12, 37e12, 8e12, 900e9, 50e9, 182'631, 148, kLargeWorkspaceBytes},
}};

// Shares of the data sheet's rates that training reaches. Products: an H100 reaches 78 % in large products in
// bf16, and 77 % in those of a step of LLaMA-1B; elementwise kernels reach 75 to 90 % of its memory's rate
// (docs/results/gpu.md). NCCL's large all-reduces reach 70 to 80 % of the links' rate (nccl-tests, bus
// bandwidth).
constexpr double kReachedFlops = 0.75, kReachedMemory = 0.8, kReachedLinks = 0.7;
/// Time between the starts of consecutive kernels in a stream that the host keeps filled: 3.8 us for kernels
/// that take 2.9 us (Gray 2019, "Getting Started with CUDA Graphs", NVIDIA's developer blog).
constexpr double kLaunchSeconds = 4e-6;
/// CUDA context and modules, NCCL's buffers, cuDNN's workspace.
constexpr int64_t kAllowanceBytes = 1'500'000'000;

double flops_per_s(const DataSheet& sheet, Precision precision) {
  return precision == Precision::kBf16   ? sheet.bf16_flops_per_s
         : precision == Precision::kFp32 ? sheet.fp32_flops_per_s
                                         : sheet.fp64_flops_per_s;
}

using Json = nlohmann::ordered_json;
constexpr int kFormVersion = 2;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason) {
  throw UsageError(
      fmt::format("--device {}: {}. Expected a profile as `sdp-train doctor --save {}` writes it "
                  "(docs/plans.md).",
                  file.string(), reason, shell_word(file.string())));
}

/// Throws FieldError if `json` has a key that no profile has, or a number that no machine can have.
void check_values(const Json& json) {
  const std::vector<std::string_view> known = keys_of<DeviceProfile>();
  for (const auto& [key, value] : json.items())
    if (std::count(known.begin(), known.end(), key) == 0)
      throw FieldError(fmt::format("the key \"{}\" is not one of a profile", key));
  check_limits<DeviceProfile>(json);
}

DeviceProfile read_profile(const std::filesystem::path& file, Precision precision) {
  std::ifstream input(file);
  std::ostringstream text;
  if (!(text << input.rdbuf())) refuse(file, "cannot be read");
  if (const std::string wrong = wrong_content(text.view()); !wrong.empty()) refuse(file, wrong);
  const std::string name(name_of(precision));
  try {
    const Json json = Json::parse(text.str());
    if (const Json& version = json.at("sdp_train_profile"); version != kFormVersion)
      refuse(file, fmt::format("sdp_train_profile: found {}, expected {}", shortened(version.dump()),
                               kFormVersion));
    const Json& values = json.at("profiles").at(name);
    check_values(values);
    DeviceProfile profile = struct_of<DeviceProfile>(values);
    if (profile.tensor_bytes() <= 0)
      throw FieldError(
          fmt::format("the key \"memory_bytes\": found {}, expected more than allowance and workspace",
                      profile.memory_bytes));
    profile.rates = RatesFrom::kSavedProfile;
    return profile;
  } catch (const FieldError& error) {
    refuse(file, fmt::format("profiles.{}: {}", name, error.what()));
  } catch (const nlohmann::json::exception& error) {
    refuse(file, fmt::format("is not a profile ({})", error.what()));
  }
}

}  // namespace

std::vector<std::string> known_devices() {
  std::vector<std::string> names;
  for (const DataSheet& sheet : kDataSheets)
    names.emplace_back(sheet.name);
  return names;
}

DeviceProfile device_profile(const std::string& name, Precision precision) {
  if (std::filesystem::path(name).extension() == ".json") return read_profile(name, precision);
  for (const DataSheet& sheet : kDataSheets)
    if (sheet.name == name)
      return {.name = name,
              .flops_per_s = kReachedFlops * flops_per_s(sheet, precision),
              .peak_flops_per_s = flops_per_s(sheet, precision),
              .tile_side = kGpuTileSide,
              .tiles_at_once = sheet.multiprocessors,
              .launch_s = kLaunchSeconds,
              .memory_bytes_per_s = kReachedMemory * sheet.memory_bytes_per_s,
              .inside_bytes_per_s = kReachedLinks * sheet.inside_bytes_per_s,
              .between_bytes_per_s = kReachedLinks * sheet.network_bytes_per_s,
              .memory_bytes = sheet.memory_mib * kMib,
              .allowance_bytes = kAllowanceBytes,
              .library_workspace_bytes = sheet.library_workspace_bytes};
  throw UsageError(
      fmt::format("--device {}: expected one of {}, or a .json file written by `sdp-train doctor --save`",
                  name, fmt::join(known_devices(), ", ")));
}

Json to_json(const DeviceProfiles& profiles) {
  Json json;
  for (const auto& [precision, profile] : profiles)
    json[std::string(name_of(precision))] = json_of(profile);
  return json;
}

DeviceProfiles profiles_of(const Json& json) {
  DeviceProfiles profiles;
  for (const auto& [precision, name] : EnumNames<Precision>::values)
    profiles[precision] = struct_of<DeviceProfile>(json.at(std::string(name)));
  return profiles;
}

std::string profile_text(const DeviceProfiles& profiles) {
  return Json{{"sdp_train_profile", kFormVersion}, {"profiles", to_json(profiles)}}.dump(2) + "\n";
}

std::optional<double> data_sheet_flops_per_s(std::string_view gpu_name, Precision precision) {
  // PCIe cards of the same name have other rates, and a part of a GPU (MIG) has only a part of the rates.
  for (const char* other : {"PCI", "NVL", "MIG"})
    if (gpu_name.find(other) != std::string_view::npos) return std::nullopt;
  for (const DataSheet& sheet : kDataSheets) {
    std::string model = " " + std::string(sheet.name);
    std::transform(model.begin(), model.end(), model.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    if (gpu_name.find(model) != std::string_view::npos) return flops_per_s(sheet, precision);
  }
  return std::nullopt;
}

}  // namespace sdp
