#pragma once

// Every regime on the ranks' device against the CPU: a few steps of tiny models, trained as a run trains.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "doctor/finding.h"
#include "doctor/masked_mlp.h"
#include "experiment/experiment.h"

namespace sdp {

/// Largest differences that pass, as shares of what training changed (relative_difference). bf16 alone is up
/// to 7 % off fp64 in these models; a gradient averaged over the wrong number of workers, or without one of
/// them, is 30 % off and more.
inline constexpr double kFp64Tolerance = 1e-9;
inline constexpr double kBf16Tolerance = 0.25;

/// What a method of training is made of.
struct CheckedMethod {
  std::string name;  ///< "B-SDP", ..., "data parallelism"
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  bool half_coverage = true;  ///< C = 1/2; false: 1
};

/// The four regimes at coverage 1/2, and data parallelism.
std::vector<CheckedMethod> checked_methods();

/// Every model is checked at a tiny size. Those with BatchNorm are checked in fp64 only: over batches so
/// small it turns bf16's rounding into other values.
std::vector<Precision> checked_precisions(std::string_view model);

/// A tiny experiment for `processes` processes: as many workers, at least four and an even number.
ExperimentSpec tiny_spec(const CheckedMethod& method, std::string_view model, Precision precision,
                         int processes);

/// Values after a few steps, computed in fp64 on the CPU by this process alone. Of `mlp` by plain code
/// (masked_mlp.h); of the other models by the engine in a world of one.
FullValues reference_values(const ExperimentSpec& fp64_spec);

/// What this process updates of the values after the same steps on the communicator's device, in the spec's
/// precision; zeros elsewhere, so that the sum over the ranks is all. Collective.
FullValues trained_share(const ExperimentSpec& spec, Communicator& comm);

/// || found - reference || / || reference - initial ||, over all parameters: the share of what training did
/// that is different. Infinite where something is not finite.
double relative_difference(const FullValues& found, const FullValues& reference, const FullValues& initial);

/// Values with which every run of the spec begins.
FullValues initial_values(const ExperimentSpec& spec);

using ReferenceOf = std::function<FullValues(const ExperimentSpec& fp64_spec)>;

/// Collective over both communicators of the same ranks. Every model, trained by the method on the
/// device of `comm` against the reference, which rank 0 computes; over `control`, on the CPU, the ranks put
/// the values together. Throws on a rank on which training fails. On ranks
/// above 0 a finding without a detail.
Finding check_method(const CheckedMethod& method, Communicator& comm, Communicator& control,
                     const ReferenceOf& reference);

}  // namespace sdp
