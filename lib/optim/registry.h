#pragma once

// The update rules: one include and one line per rule. optim/rule.h describes what a rule consists of.

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "spec/one_of.h"

namespace sdp {

using UpdateRule = OneOf<SgdSpec,  //
                         AdamWSpec>;

}  // namespace sdp
