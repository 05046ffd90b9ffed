#pragma once

// The requirements that optim/registry.h places on an update rule: a header NAME.h, which does not include
// LibTorch, and a function in update.cpp. NAME.h defines a struct with
//
//   names              the names of the rule in optimizer.name
//   lr, weight_decay, decay_norms_and_biases   with the rule's own defaults
//   fields()           the rule's keys in the section `optimizer` (spec/visit.h): common_fields and its own
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

/// The keys that every rule has. `decay`: what weight_decay means.
template <class Spec, class Visitor>
void common_fields(Visitor& field, std::string_view decay) {
  field("lr", &Spec::lr, "peak learning rate", OnResume::kRestOfRun, InReport::kCompared, positive());
  field("weight_decay", &Spec::weight_decay, decay, OnResume::kRestOfRun, InReport::kCompared, at_least(0));
  field("decay_norms_and_biases", &Spec::decay_norms_and_biases,
        "apply weight_decay to normalization parameters and biases too", OnResume::kRestOfRun,
        InReport::kCompared,
        advise_when<Spec>([](const Spec& s) { return s.weight_decay == 0; },
                          "has no effect: weight_decay is 0"));
}

}  // namespace sdp
