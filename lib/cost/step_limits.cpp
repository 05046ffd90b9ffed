#include "cost/step_limits.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "cost/record_step.h"
#include "ops/availability.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// The fewest values per channel and sample that a BatchNorm sees; none without BatchNorm.
std::optional<int64_t> fewest_norm_positions(const ModelLayout& layout, const StepShape& step) {
  const SubnetPlan whole = make_plan(layout, SubnetworkSpec{}, 0);
  std::optional<int64_t> fewest;
  for (const RecordedLayerGroup& layer_group : record_step(step, whole, 0, /*batch_size=*/1))
    for (const RecordedCall& call : layer_group.forward.calls) {
      if (call.op.name != "aten::native_batch_norm") continue;
      const std::vector<int64_t>& shape = call.tensor(0).sizes;  // [1, C, S, S]
      fewest = std::min(fewest.value_or(shape[2] * shape[3]), shape[2] * shape[3]);
    }
  return fewest;
}

/// Bytes that a sample keeps for the backward pass, in the widest type; infinity if a tensor's size does not
/// fit into 64 bits.
double bytes_per_sample(const ModelLayout& layout, const ExperimentSpec& spec) {
  const SubnetPlan whole = make_plan(layout, SubnetworkSpec{}, 0);
  StepShape step = step_shape(spec, /*on_gpu=*/false);
  step.precision = Precision::kFp64;
  step.checkpoint_activations = false;
  try {
    return StepCaptures(std::move(step), whole).of(0).kept_bytes(1);
  } catch (const c10::Error&) {
    return std::numeric_limits<double>::infinity();
  }
}

}  // namespace

StepShape step_shape(const ExperimentSpec& spec, bool on_gpu) {
  return {.model = spec.model,
          .sequence_length = spec.data.sequence_length(),
          .precision = spec.train.precision,
          .checkpoint_activations = spec.train.checkpoint_activations,
          .device_kernels = on_gpu && ops::has_device_kernels()};
}

void check_batch_norms(const ModelLayout& layout, const ExperimentSpec& spec) {
  const bool recalibrates = spec.eval.recalibrate_batches.value_or(0) > 0;
  const bool has_one = spec.train.batch_size_per_worker == 1 || (recalibrates && spec.eval.batch_size == 1);
  if (!has_one || !spec.model.has_batch_norm()) return;
  const std::optional<int64_t> positions = fewest_norm_positions(layout, step_shape(spec, /*on_gpu=*/false));
  if (!positions || *positions > 1) return;
  const auto check = [&](std::string_view key, int64_t batch_size) {
    if (batch_size == 1)
      throw UsageError(fmt::format(
          "{}: 1 with model.image_size: {} leaves a BatchNorm of {} one value per channel, expected two "
          "or more: the last blocks have {} position. Set {} to 2 or more, a larger "
          "model.image_size, or model.stem: cifar, which does not reduce the image.",
          key, spec.model.image_size(), layout.name, *positions, key));
  };
  check("train.batch_size_per_worker", spec.train.batch_size_per_worker);
  if (recalibrates) check("eval.batch_size", spec.eval.batch_size.value_or(0));
}

double check_model_size(const ModelLayout& layout, const ExperimentSpec& spec) {
  const int64_t parameters = layout.parameter_count();
  if (parameters > kMostParameters)
    throw UsageError(
        fmt::format("model: {} has {} parameters, expected at most {}. Lower its width, depth or vocabulary.",
                    layout.name, parameters, kMostParameters));
  const double sample_bytes = bytes_per_sample(layout, spec);
  if (sample_bytes > kMostSampleBytes)
    throw UsageError(fmt::format(
        "model: a sample of {} needs up to {:.3g} bytes of activations, expected at most {:.3g}. Lower the "
        "model's width, depth or image_size, or data.sequence_length.",
        layout.name, sample_bytes, kMostSampleBytes));
  return sample_bytes;
}

void check_step_size(const ModelLayout& layout, double sample_bytes, const ExperimentSpec& spec) {
  const double micro_batches = static_cast<double>(spec.train.accumulate_steps) *
                               static_cast<double>(spec.subnetwork.workers) *
                               static_cast<double>(spec.subnetwork.replicas);
  constexpr double kBytesPerParameter = 16;  // sent per micro-batch, at most
  const double step_bytes =
      micro_batches * (kBytesPerParameter * static_cast<double>(layout.parameter_count()) +
                       sample_bytes * static_cast<double>(spec.train.batch_size_per_worker));
  if (step_bytes > kMostStepBytes)
    throw UsageError(
        fmt::format("train: a step of {} workers x {} replicas x {} micro-batches of {} samples needs up to "
                    "{:.3g} bytes, expected at most {:.3g}. Lower train.batch_size_per_worker or "
                    "train.accumulate_steps.",
                    spec.subnetwork.workers, spec.subnetwork.replicas, spec.train.accumulate_steps,
                    spec.train.batch_size_per_worker, step_bytes, kMostStepBytes));
}

}  // namespace sdp
