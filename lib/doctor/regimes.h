#pragma once

// Compares every regime on the ranks' device with the CPU: a few steps of tiny models, trained as in a run.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "doctor/finding.h"
#include "doctor/masked_mlp.h"
#include "experiment/experiment.h"

namespace sdp {

/// Largest differences that pass, relative to what training changed (relative_difference). Rounding of bf16
/// causes up to 7 % in these models; a gradient averaged over the wrong number of workers, or without one of
/// them, causes 30 % or more. In fp64, ResNet-50's BatchNorms amplify rounding to 2e-9 between an H100 and a
/// CPU; products in fp32 or TF32 would differ by far more than 1e-7.
inline constexpr double kFp64Tolerance = 1e-7;
inline constexpr double kBf16Tolerance = 0.25;

/// The settings of a method of training.
struct CheckedMethod {
  std::string name;  ///< "B-SDP", ..., "data parallelism"
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  bool half_coverage = true;  ///< C = 1/2; false: C = 1
};

/// The four regimes at coverage 1/2, and data parallelism.
std::vector<CheckedMethod> checked_methods();

/// Every model is checked at a tiny size. Models with BatchNorm are checked only in fp64, because over such
/// small batches BatchNorm amplifies bf16's rounding.
std::vector<Precision> checked_precisions(std::string_view model);

/// A tiny experiment for `processes` processes: as many workers, but at least four and an even number.
ExperimentSpec tiny_spec(const CheckedMethod& method, std::string_view model, Precision precision,
                         int processes);

/// Parameters after a few steps, computed in fp64 on the CPU by this process only: for `mlp` by plain code
/// (masked_mlp.h), for the other models by the engine in a world of size one.
FullValues reference_values(const ExperimentSpec& fp64_spec);

/// This process's shard of the parameters after the same steps on the communicator's device, in the spec's
/// precision; zeros elsewhere, so that the sum over the ranks has all parameters. Collective.
FullValues trained_share(const ExperimentSpec& spec, Communicator& comm);

/// || found - reference || / || reference - initial ||, over all parameters: the difference relative to the
/// change by training. Infinite if any value is not finite.
double relative_difference(const FullValues& found, const FullValues& reference, const FullValues& initial);

/// Parameters with which every run of the spec begins.
FullValues initial_values(const ExperimentSpec& spec);

using ReferenceOf = std::function<FullValues(const ExperimentSpec& fp64_spec)>;

/// Collective over both communicators, which have the same ranks. Trains every model by the method on the
/// device of `comm` and compares it with the reference, which rank 0 computes. The ranks combine the
/// parameters over `control`, on the CPU. Throws on a rank on which training fails. Ranks above 0 return a
/// finding without a detail.
Finding check_method(const CheckedMethod& method, Communicator& comm, Communicator& control,
                     const ReferenceOf& reference);

}  // namespace sdp
