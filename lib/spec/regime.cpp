#include "spec/regime.h"

namespace sdp {

const std::vector<Regime>& all_regimes() {
  static const std::vector<Regime> regimes{{Construction::kNeuron, Masking::kForward},
                                           {Construction::kBlock, Masking::kForward},
                                           {Construction::kBlock, Masking::kBackward},
                                           {Construction::kNeuron, Masking::kBackward}};
  return regimes;
}

std::string name_of(Regime regime) {
  const std::string construction = regime.construction == Construction::kBlock ? "B" : "N";
  return regime.masking == Masking::kForward ? construction : construction + "_b";
}

std::string method_name(Regime regime) {
  return name_of(regime) + "-SDP";
}

Regime regime_of(const SubnetworkSpec& spec) {
  return {spec.construction, spec.masking};
}

}  // namespace sdp
