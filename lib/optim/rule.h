#pragma once

// The requirements that optim/registry.h places on an update rule. A rule consists of NAME.h, which does not
// include LibTorch, and NAME.cpp. NAME.h defines a struct with
//
//   names              the names of the rule in optimizer.name
//   fields()           the keys of the rule in the section `optimizer` (spec/visit.h)
//   check(positions)   throws UsageError for keys that contradict each other
//   state_names()      the names of its state tensors, as in the state dict of torch.optim; each tensor has
//                      the size of the values and is initialized to 0
//
// and declares this function, without which it does not compile:
//
//   void update(const NameSpec&, const UpdateStep&, const UpdateTensors&);   in place
//
// A rule sees flat ranges, and a process may hold only a part of a layer. A rule that needs a layer's shape
// or norm (Muon, LAMB, Adafactor) is therefore not possible.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "spec/position.h"
#include "spec/visit.h"

namespace sdp {

struct UpdateStep;
struct UpdateTensors;

}  // namespace sdp
