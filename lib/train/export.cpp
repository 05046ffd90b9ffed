#include "train/export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"

namespace sdp {
namespace {

constexpr std::string_view kRunningMean = ".running_mean";

/// torchvision's count of BatchNorm updates, which its state dict has beside the running statistics.
std::vector<std::string> counters(const ModelLayout& layout) {
  std::vector<std::string> names;
  for (const BufferLayout& buffer : layout.buffers)
    if (buffer.name.ends_with(kRunningMean))
      names.push_back(buffer.name.substr(0, buffer.name.size() - kRunningMean.size()) +
                      ".num_batches_tracked");
  return names;
}

}  // namespace

void export_model(FullModel& model, const Manifest& manifest, ElementType type, int64_t recalibrate_batches,
                  const std::filesystem::path& out) {
  const ModelLayout& layout = model.plan().layout;
  const DType dtype = type == ElementType::kF64 ? DType::kF64 : DType::kF32;
  std::vector<TensorEntry> entries;
  for (const ParameterLayout& parameter : layout.parameters)
    entries.push_back({parameter.name, dtype, parameter.shape});
  for (const BufferLayout& buffer : layout.buffers)
    entries.push_back({buffer.name, dtype, buffer.shape});
  for (const std::string& name : counters(layout))
    entries.push_back({name, DType::kI64, {}});
  sort_for_writing(entries);

  SafetensorsWriter writer(out, entries,
                           {{"format", "pt"},
                            {"step", std::to_string(manifest.step)},
                            {"plan_hash", manifest.plan_hash},
                            {"branch_scale", fmt::format("{}", model.branch_scale())},
                            {"recalibrate_batches", std::to_string(recalibrate_batches)}});
  for (const TensorEntry& entry : entries) {
    at::Tensor values;
    if (entry.dtype == DType::kI64) {
      values = at::full({}, manifest.state.at("batch_norm_updates").get<int64_t>(), at::kLong);
    } else if (model.buffers().contains(entry.name)) {
      values = model.buffer(entry.name);
    } else {
      values = model.read_one(layout.parameter_index(entry.name));
    }
    values = values.contiguous();
    writer.write(std::span(static_cast<const std::byte*>(values.data_ptr()), values.nbytes()));
  }
  writer.finish();
}

}  // namespace sdp
