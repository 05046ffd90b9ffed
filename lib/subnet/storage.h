#pragma once

// Which tensors a process stores: one for every part of a parameter that its slots hold. Slots that hold the
// same units of a parameter share one tensor.

#include <compare>
#include <cstdint>
#include <set>
#include <vector>

#include "subnet/placement.h"
#include "subnet/plan.h"

namespace sdp {

/// The units of a parameter that stand in one tensor, one after another along its sliced dimension.
struct StoredPart {
  int parameter = 0;
  std::vector<int> units;  ///< ascending; {kSharedUnit} for a parameter that is not divided

  auto operator<=>(const StoredPart&) const = default;
};

std::set<StoredPart> stored_parts(const SubnetPlan& plan, const std::vector<Slot>& slots);

int64_t elements_of(const SubnetPlan& plan, const StoredPart& part);

}  // namespace sdp
