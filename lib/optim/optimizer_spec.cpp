#include "optim/optimizer_spec.h"

#include "optim/registry.h"

namespace sdp {

UpdateRule default_rule() {
  return UpdateRule();
}

void OptimizerSpec::check(const Positions& positions) const {
  rule.visit([&](const auto& own) { own.check(positions); });
}

double OptimizerSpec::lr() const {
  return rule.visit([](const auto& own) { return own.lr; });
}

double OptimizerSpec::weight_decay(int group, bool decays) const {
  const double of_rule = decays ? rule.visit([](const auto& own) { return own.weight_decay; }) : 0;
  return group < 0 ? of_rule : groups[static_cast<size_t>(group)].weight_decay.value_or(of_rule);
}

bool OptimizerSpec::decay_norms_and_biases() const {
  return rule.visit([](const auto& own) { return own.decay_norms_and_biases; });
}

std::vector<std::string> OptimizerSpec::state_names() const {
  std::vector<std::string> names = rule.visit([](const auto& own) { return own.state_names(); });
  if (ema_decay > 0) names.emplace_back(kAverageName);
  return names;
}

}  // namespace sdp
