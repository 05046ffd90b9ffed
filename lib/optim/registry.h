#pragma once

// The update rules: one include and one line per rule. optim/rule.h describes what a rule consists of.
// Included where rules are read, printed or applied; others include optim/optimizer_spec.h.

#include <tuple>

#include "optim/adamw.h"
#include "optim/sgd.h"

namespace sdp {

struct UpdateRules {
  using Types = std::tuple<SgdSpec,  //
                           AdamWSpec>;
};

}  // namespace sdp
