#include "optim/update.h"

namespace sdp {

void update(const OptimizerSpec& spec, const UpdateStep& step, const UpdateTensors& tensors) {
  spec.rule.visit([&](const auto& rule) { update(rule, step, tensors); });
}

}  // namespace sdp
