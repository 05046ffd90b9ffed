#pragma once

// Which tensors a process stores: one for each part of a parameter that its slots hold. Slots that hold the
// same units of a parameter share one tensor.

#include <compare>
#include <set>
#include <vector>

#include "subnet/exchange_plan.h"
#include "subnet/plan.h"
#include "subnet/slot_map.h"

namespace sdp {

/// The units of a parameter that are stored in one tensor, one after another along its sliced dimension.
struct StoredPart {
  int parameter = 0;
  std::vector<int> units;  ///< ascending; {kSharedUnit} for a parameter that is not divided

  // NOLINTNEXTLINE(modernize-use-nullptr): false alarm of clang-tidy 14
  auto operator<=>(const StoredPart&) const = default;
};

std::set<StoredPart> stored_parts(const SubnetPlan& plan, const std::vector<Slot>& slots);

/// The units of each tensor that is stored of a divided parameter of the branch.
std::set<std::vector<int>> stored_units(const SubnetPlan& plan, int branch, const std::vector<Slot>& slots);

/// Whether a unit's slice of the parameter is contiguous in a tensor that holds this many units of the
/// parameter.
bool is_contiguous(const ParameterLayout& parameter, size_t units);

/// By parameter, whether these slots store a unit's slice of it twice, or not contiguously.
std::vector<char> scattered_parameters(const SubnetPlan& plan, const std::vector<Slot>& slots);

/// Whether a process with these scattered parameters updates the bucket's values where the model reads them,
/// and not in a copy. If their gradients have one summand (BucketElements), it applies them where autograd
/// has left them.
bool updates_in_place(const ExchangePlan& exchanges, int bucket, int process,
                      const std::vector<char>& scattered);

}  // namespace sdp
