#pragma once

#include <fnmatch.h>

#include <optional>
#include <string>
#include <vector>

#include "spec/visit.h"

namespace sdp {

/// Parameters with rates of their own (optimizer.groups), as the param_groups of torch.optim.
struct ParameterGroup {
  static constexpr Treatment treatment = {OnResume::kRestOfRun, InReport::kCompared};

  std::string match;
  double lr_factor = 1;
  std::optional<double> weight_decay = {};

  bool operator==(const ParameterGroup&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("match", &ParameterGroup::match,
          "pattern of parameter names, such as 'layer1.*' or '*.[01].conv?.weight' (fnmatch)", kRequired);
    field("lr_factor", &ParameterGroup::lr_factor,
          "factor on the learning rate; 0: the values stay as they are", at_least(0));
    field("weight_decay", &ParameterGroup::weight_decay,
          "instead of optimizer.weight_decay, for norms and biases too; unset: optimizer.weight_decay",
          at_least(0));
  }
};

/// Index of the first group that matches the parameter's name; -1 if none does.
inline int group_of(const std::vector<ParameterGroup>& groups, const std::string& parameter) {
  for (size_t g = 0; g < groups.size(); ++g)
    if (fnmatch(groups[g].match.c_str(), parameter.c_str(), 0) == 0) return static_cast<int>(g);
  return -1;
}

}  // namespace sdp
