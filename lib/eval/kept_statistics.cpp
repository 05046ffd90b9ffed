#include "eval/evaluation.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include "checkpoint/checkpoint_tensors.h"
#include "experiment/spec/print.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// The keys of the spec that the statistics depend on; the others have their defaults.
ExperimentSpec relevant_part(const ExperimentSpec& spec) {
  ExperimentSpec part;
  part.seed = spec.seed;
  part.model = spec.model;
  part.data.set = spec.data.set;
  part.data.augment = spec.data.augment;
  part.train.batch_size_per_worker = spec.train.batch_size_per_worker;
  part.train.precision = spec.train.precision;
  part.eval.recalibrate_batches = spec.eval.recalibrate_batches;
  return part;
}

}  // namespace

KeptStatistics::KeptStatistics(const std::filesystem::path& checkpoint, const ExperimentSpec& spec,
                               const DataIdentity& training_data, const FullModel& model) {
  const std::string inputs =
      fmt::format("{}{} {} {}{}", to_yaml(relevant_part(spec)), training_data.samples, training_data.hash,
                  model.branch_scale(), model.values() == ModelValues::kAverage ? " average" : "");
  path_ = checkpoint / fmt::format("statistics-{}", xxh3_128(inputs));
}

bool KeptStatistics::load(FullModel& model) const try {
  if (!std::filesystem::exists(path_)) return false;
  const SafetensorsFile file(path_);
  std::map<std::string, at::Tensor> kept;
  for (const auto& [name, buffer] : model.buffers()) {
    const TensorView* view = file.find(name);
    if (!view || view->entry.dtype != DType::kF64 || view->entry.shape != buffer.sizes().vec()) return false;
    const at::Tensor values = at::empty(buffer.sizes(), at::kDouble);
    std::copy(view->data.begin(), view->data.end(), static_cast<std::byte*>(values.data_ptr()));
    kept[name] = values.to(buffer.options());
  }
  model.buffers() = kept;
  return true;
} catch (const DataError&) {
  return false;
} catch (const std::filesystem::filesystem_error&) {
  return false;
}

void KeptStatistics::save(FullModel& model) const try {
  TensorFile file;
  for (const auto& [name, buffer] : model.buffers())
    file.add(name, DType::kF64, buffer.sizes().vec(), [&buffer] { return buffer.to(at::kDouble); });
  // Complete or not there, also if two programs write it at once.
  const std::filesystem::path unfinished = fmt::format("{}.{}.tmp", path_.string(), getpid());
  file.write(unfinished, {});
  std::filesystem::rename(unfinished, path_);
} catch (const DataError&) {
} catch (const std::filesystem::filesystem_error&) {
}

}  // namespace sdp
