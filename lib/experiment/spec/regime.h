#pragma once

// The names of the regimes: the paper's for construction and masking, and those of the baselines.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

struct Regime {
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;

  bool operator==(const Regime&) const = default;
};

/// N-SDP, B-SDP, B_b-SDP and N_b-SDP, in that order.
const std::vector<Regime>& all_regimes();

/// "nsdp", "bsdp", "bbsdp" or "nbsdp": in file names and on the command line.
std::string name_of(Regime regime);
/// "N-SDP", "B-SDP", "B_b-SDP" or "N_b-SDP": in tables and figures.
std::string method_name(Regime regime);

Regime regime_of(const SubnetworkSpec& spec);

/// What tables call the spec's method: `method_name` below full coverage. At coverage 1, data
/// parallelism by what the processes divide (Rajbhandari et al. 2020): "DDP" nothing, "ZeRO-1" the optimizer
/// state, "ZeRO-2" the gradients too.
std::string method_of(const ExperimentSpec& spec);

/// The first method that a label names although the spec is another: "DDP, width 12" of a spec that is
/// ZeRO-2. Nothing where the label names no method or the right one; a spec of coverage 1 may also be called
/// by its regime. Methods that this program does not have, ZeRO-3 and FSDP, are always wrong.
std::optional<std::string> contradicted_method(std::string_view label, const ExperimentSpec& spec);

}  // namespace sdp
