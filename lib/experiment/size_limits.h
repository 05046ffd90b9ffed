#pragma once

// The largest model and step that plans are made of. Every number of a spec has a limit of its own
// (spec/limits.h); what is checked here are their products. Within these limits no size, number of bytes or
// number of samples overflows 64 bits, so that plans compute them without further checks.

#include "experiment/spec/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Parameters of a model: 1.1e12.
inline constexpr int64_t kMostParameters = int64_t{1} << 40;
/// Bytes that a sample may keep for the backward pass: 1 TiB.
inline constexpr double kMostSampleBytes = 0x1p40;
/// Bytes that all processes together compute with or send in a step: 2 EiB.
inline constexpr double kMostStepBytes = 0x1p61;

/// Throws UsageError, with what to change, where the layout, or a step that the spec makes of it, is beyond
/// these limits.
void check_sizes(const ModelLayout& layout, const ExperimentSpec& spec);

}  // namespace sdp
