#pragma once

#include "optim/rule.h"

namespace sdp {

/// Throws UsageError for Nesterov momentum without momentum; `key`: of the former.
inline void check_nesterov(bool nesterov, double momentum, const std::string& key,
                           const Positions& positions) {
  if (nesterov && momentum == 0)
    fail_at(positions.of(key), key, "found true with momentum 0, expected false or a momentum above 0");
}

/// torch.optim.SGD, with weight decay as an L2 term that is added to the gradient. Defaults: the recipe for
/// residual networks on CIFAR (Zagoruyko & Komodakis 2016).
struct SgdSpec {
  static constexpr auto names = std::to_array<std::string_view>({"sgd"});

  double lr = 0.1;
  double weight_decay = 5e-4;
  bool decay_norms_and_biases = true;
  double momentum = 0.9;
  bool nesterov = false;

  bool operator==(const SgdSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    common_fields<SgdSpec>(field, "factor of the L2 penalty");
    field("momentum", &SgdSpec::momentum, "momentum factor; 0: no momentum", OnResume::kFixed,
          InReport::kCompared, at_least_and_below(0, 1));
    field("nesterov", &SgdSpec::nesterov, "use Nesterov momentum", OnResume::kRestOfRun, InReport::kCompared);
  }

  void check(const Positions& positions) const {
    check_nesterov(nesterov, momentum, "optimizer.nesterov", positions);
  }

  std::vector<std::string> state_names() const {
    if (momentum > 0) return {"momentum_buffer"};
    return {};
  }
};

void update(const SgdSpec& rule, const UpdateStep& step, const UpdateTensors& tensors);

}  // namespace sdp
