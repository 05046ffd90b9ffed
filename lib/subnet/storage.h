#pragma once

// Which tensors a process stores: one for each part of a parameter that its slots hold. Slots that hold the
// same units of a parameter share one tensor.

#include <set>
#include <tuple>
#include <vector>

#include "subnet/placement.h"
#include "subnet/plan.h"

namespace sdp {

/// The units of a parameter that are stored in one tensor, one after another along its sliced dimension.
struct StoredPart {
  int parameter = 0;
  std::vector<int> units;  ///< ascending; {kSharedUnit} for a parameter that is not divided

  bool operator<(const StoredPart& other) const {
    return std::tie(parameter, units) < std::tie(other.parameter, other.units);
  }
};

std::set<StoredPart> stored_parts(const SubnetPlan& plan, const std::vector<Slot>& slots);

/// Whether a unit's piece of the parameter is contiguous in a tensor that holds this many units of the
/// parameter.
bool is_contiguous(const ParameterLayout& parameter, size_t units);

}  // namespace sdp
