#pragma once

// One step of N-SDP on a tiny `mlp`, trained on the ranks' device as in a run, against an oracle in plain
// tensor operations on the CPU. All models and regimes: the tests with the label `device`.

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.h"
#include "doctor/finding.h"
#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// All parameters, fp64 on the CPU, in the full model's shapes and the layout's order.
using FullValues = std::vector<at::Tensor>;

/// Half coverage, and as many workers as processes, but at least four and an even number.
ExperimentSpec masked_step_spec(Precision precision, int processes);

/// The parameters after the step, by an oracle: the whole model in which every worker multiplies the hidden
/// units that it does not own by 0. Each gradient is averaged over its owners. Of lib/model and lib/engine it
/// uses only the plan, which says who owns what, and the initial values.
FullValues oracle_values(const ExperimentSpec& fp64_spec);

/// Collective. Takes the step on the device of `comm`, in the spec's precision, and returns the difference
/// relative to what the step changes: || found - expected || / || expected - initial ||, over all parameters.
/// The same on all ranks.
double step_difference(const ExperimentSpec& spec, const FullValues& expected, Communicator& comm);

/// Collective. Takes the step in fp64, where a difference of at most 1e-9 from the oracle's values passes,
/// and in bf16, where at most 0.25 does: rounding causes up to 0.07, a gradient averaged over the wrong
/// number of workers, or without one of them, 0.3 or more.
Finding check_masked_step(const FullValues& expected, Communicator& comm);

}  // namespace sdp
