#pragma once

// The names of the regimes: the paper's names for construction and masking, and the names of the baselines.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/experiment_spec.h"

namespace sdp {

struct Regime {
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;

  bool operator==(const Regime&) const = default;
};

/// N-SDP, B-SDP, B_b-SDP and N_b-SDP, in that order.
const std::vector<Regime>& all_regimes();

/// "nsdp", "bsdp", "bbsdp" or "nbsdp", as in file names and on the command line.
std::string name_of(Regime regime);
/// "N-SDP", "B-SDP", "B_b-SDP" or "N_b-SDP", as in tables and figures.
std::string method_name(Regime regime);

Regime regime_of(const SubnetworkSpec& spec);

/// The name of the spec's method in tables. Below full coverage it is `method_name`. At coverage 1 it is a
/// form of data parallelism, by what the processes shard (Rajbhandari et al. 2020): "DDP" nothing, "ZeRO-1"
/// the optimizer state, "ZeRO-2" the optimizer state and the gradients.
std::string method_of(const ExperimentSpec& spec);

/// The settings that decide method_of: "subnetwork.coverage 1, optimizer.shard true, ...".
std::string method_settings(const ExperimentSpec& spec);

/// The first method that a label names although the spec uses a different one, for example "DDP" in the label
/// "DDP, width 12" of a spec that is ZeRO-2. std::nullopt if the label names no method or the right one; a
/// spec of coverage 1 may also be named by its regime. ZeRO-3 and FSDP, which this program does not have, are
/// always wrong.
std::optional<std::string> contradicted_method(std::string_view label, const ExperimentSpec& spec);

}  // namespace sdp
