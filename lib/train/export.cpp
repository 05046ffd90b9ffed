#include "train/export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "checkpoint/safetensors.h"
#include "train/checkpointing.h"

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

void export_model(ExperimentSpec spec, const std::filesystem::path& run_dir,
                  const std::filesystem::path& out) {
  const CheckpointReader reader(run_dir, std::nullopt, /*verify_hashes=*/true);
  const Experiment experiment = make_experiment(spec, 1);
  // Master values, whatever type the run computed in.
  if (spec.train.precision == Precision::kBf16) spec.train.precision = Precision::kFp32;
  SavedFullModel model(experiment.plan, reader, spec, at::kCPU);
  const bool scales = spec.eval.branch_scale == BranchScale::kSurvival;
  const double branch_scale = scales ? experiment.plan.coverage() : 1;
  model.set_branch_scale(branch_scale);

  const DType dtype = spec.train.precision == Precision::kFp64 ? DType::kF64 : DType::kF32;
  std::vector<TensorEntry> entries;
  for (const ParameterLayout& parameter : experiment.plan.layout.parameters)
    entries.push_back({parameter.name, dtype, parameter.shape});
  for (const BufferLayout& buffer : experiment.plan.layout.buffers)
    entries.push_back({buffer.name, dtype, buffer.shape});
  const std::vector<std::string> counter_names = counters(experiment.plan.layout);
  for (const std::string& name : counter_names)
    entries.push_back({name, DType::kI64, {}});
  sort_for_writing(entries);

  SafetensorsWriter writer(out, entries,
                           {{"format", "pt"},
                            {"step", std::to_string(reader.manifest().step)},
                            {"plan_hash", reader.manifest().plan_hash},
                            {"branch_scale", fmt::format("{}", branch_scale)}});
  const int64_t updates = reader.manifest().step;
  for (const TensorEntry& entry : entries) {
    at::Tensor values;
    if (entry.dtype == DType::kI64) {
      values = at::full({}, updates, at::kLong);
    } else if (model.buffers().contains(entry.name)) {
      values = model.buffer(entry.name);
    } else {
      values = model.read_one(experiment.plan.layout.parameter_index(entry.name));
    }
    values = values.contiguous();
    writer.write(std::span(static_cast<const std::byte*>(values.data_ptr()), values.nbytes()));
  }
  writer.finish();
}

}  // namespace sdp
