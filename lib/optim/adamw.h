#pragma once

#include "optim/rule.h"

namespace sdp {

/// torch.optim.AdamW, with decoupled weight decay. Defaults: the decay of GPT-3 (Brown et al. 2020), a
/// learning rate that suits models of any size, and PyTorch's betas.
struct AdamWSpec {
  static constexpr auto names = std::to_array<std::string_view>({"adamw"});

  double lr = 3e-4;
  double weight_decay = 0.1;
  bool decay_norms_and_biases = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;

  bool operator==(const AdamWSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    common_fields<AdamWSpec>(field, "decoupled weight decay");
    field("beta1", &AdamWSpec::beta1, "decay rate of the first moment", OnResume::kRestOfRun,
          InReport::kCompared, at_least_and_below(0, 1));
    field("beta2", &AdamWSpec::beta2, "decay rate of the second moment", OnResume::kRestOfRun,
          InReport::kCompared, at_least_and_below(0, 1));
    field("eps", &AdamWSpec::eps, "added to the square root of the second moment", OnResume::kRestOfRun,
          InReport::kCompared, positive());
  }

  void check(const Positions&) const {}
  std::vector<std::string> state_names() const { return {"exp_avg", "exp_avg_sq"}; }
};

void update(const AdamWSpec& rule, const UpdateStep& step, const UpdateTensors& tensors);

}  // namespace sdp
