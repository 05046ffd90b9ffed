#pragma once

// The paper's names of construction and masking.

#include <string>
#include <vector>

#include "spec/experiment_spec.h"

namespace sdp {

struct Regime {
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;

  bool operator==(const Regime&) const = default;
};

/// N, B, B_b and N_b, in that order.
const std::vector<Regime>& all_regimes();

/// "N", "B", "B_b" or "N_b".
std::string name_of(Regime regime);
/// "N-SDP", "B-SDP", "B_b-SDP" or "N_b-SDP".
std::string method_name(Regime regime);

Regime regime_of(const SubnetworkSpec& spec);

}  // namespace sdp
