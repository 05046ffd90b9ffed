#include "forecast/device_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "spec/error.h"

namespace sdp {
namespace {

/// Of the vendor's data sheets, without sparsity; links one way. fp32 is fp32: TF32 is off. The links between
/// nodes are those of the vendor's own systems (DGX): one adapter a device.
struct DataSheet {
  std::string_view name;
  double bf16_flops_per_s, fp32_flops_per_s, fp64_flops_per_s;
  double memory_bytes_per_s, nvlink_bytes_per_s, network_bytes_per_s;
  int64_t memory_bytes;
};
constexpr std::array<DataSheet, 3> kDataSheets = {{
    {"a100", 312e12, 19.5e12, 9.7e12, 2.04e12, 300e9, 25e9, 80'000'000'000},
    {"h100", 989e12, 67e12, 34e12, 3.35e12, 450e9, 50e9, 80'000'000'000},
    {"h200", 989e12, 67e12, 34e12, 4.8e12, 450e9, 50e9, 141'000'000'000},
}};

// Shares of the data sheet that training reaches: 40 % of the products is usual for transformers of a billion
// parameters; memory and links come nearer to theirs with large buffers.
constexpr double kReachedFlops = 0.4;
constexpr double kReachedMemory = 0.8;
constexpr double kReachedLinks = 0.7;
/// CUDA context and modules, NCCL's buffers, cuBLAS's and cuDNN's workspace.
constexpr int64_t kAllowanceBytes = 1'500'000'000;

double flops_per_s(const DataSheet& sheet, Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return sheet.bf16_flops_per_s;
    case Precision::kFp32:
      return sheet.fp32_flops_per_s;
    case Precision::kFp64:
      return sheet.fp64_flops_per_s;
  }
  return 0;
}

}  // namespace

std::vector<std::string> known_devices() {
  std::vector<std::string> names;
  for (const DataSheet& sheet : kDataSheets)
    names.emplace_back(sheet.name);
  return names;
}

DeviceProfile device_profile(std::string_view name, Precision precision) {
  for (const DataSheet& sheet : kDataSheets)
    if (sheet.name == name)
      return {.name = std::string(name),
              .flops_per_s = kReachedFlops * flops_per_s(sheet, precision),
              .memory_bytes_per_s = kReachedMemory * sheet.memory_bytes_per_s,
              .inside_bytes_per_s = kReachedLinks * sheet.nvlink_bytes_per_s,
              .between_bytes_per_s = kReachedLinks * sheet.network_bytes_per_s,
              .memory_bytes = sheet.memory_bytes,
              .allowance_bytes = kAllowanceBytes};
  throw UsageError(
      fmt::format("--device {}: expected one of {}, or measure", name, fmt::join(known_devices(), ", ")));
}

}  // namespace sdp
