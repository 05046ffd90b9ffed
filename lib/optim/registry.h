#pragma once

// The update rules: an include and a line each. What a rule is, optim/rule.h says.

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "spec/one_of.h"

namespace sdp {

using UpdateRule = OneOf<SgdSpec,  //
                         AdamWSpec>;

}  // namespace sdp
