#pragma once

// The step that a spec describes, and sizes that no plan can be made for or that cannot be trained: the
// largest model and step for which plans are made. Every number of a spec has its own limit (spec/field.h);
// these limits apply to products of the numbers. Within them no size, number of bytes or number of samples
// overflows 64 bits, so plans compute without further checks.

#include "cost/step_captures.h"
#include "experiment/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// The step that the spec describes, for its captures, on a CPU or a GPU.
StepShape step_shape(const ExperimentSpec& spec, bool on_gpu);

/// Parameters of a model: at most 1.1e12.
inline constexpr int64_t kMostParameters = int64_t{1} << 40;
/// Bytes that a sample saves for the backward pass: at most 1 TiB.
inline constexpr double kMostSampleBytes = 0x1p40;
/// Bytes that all processes together hold or send in a step: at most 2 EiB.
inline constexpr double kMostStepBytes = 0x1p61;

/// The bytes that a sample saves, in the widest type: they depend on the model and the sequence length alone.
/// Throws UsageError if they or the parameters exceed these limits. The message says what to change.
double check_model_size(const ModelLayout& layout, const ExperimentSpec& spec);

/// The same for a step of the spec.
void check_step_size(const ModelLayout& layout, double sample_bytes, const ExperimentSpec& spec);

/// Throws UsageError if a BatchNorm would see one value per channel, whose variance is not defined (as in
/// PyTorch: "Expected more than 1 value per channel when training"), in training or recalibration.
void check_batch_norms(const ModelLayout& layout, const ExperimentSpec& spec);

}  // namespace sdp
