#pragma once

// What optim/registry.h asks of every update rule. A rule is NAME.h, without LibTorch, and NAME.cpp: a struct
// with
//
//   names              of the rule in optimizer.name
//   fields()           its own keys of the section `optimizer` (spec/visit.h)
//   check(positions)   throws UsageError for keys that contradict each other
//   state_names()      of its state, as in the state dict of torch.optim; each has the size of the values and
//                      begins at 0
//
// and declares a function, without which it does not compile:
//
//   void update(const NameSpec&, const UpdateStep&, const UpdateTensors&);   in place
//
// Ranges are flat, and a process may hold a part of a layer: a rule that needs a layer's shape or norm (Muon,
// LAMB, Adafactor) does not fit.

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
