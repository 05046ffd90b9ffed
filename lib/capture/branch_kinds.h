#pragma once

#include <vector>

#include "subnet/layout.h"

namespace sdp {

/// By branch: the first branch that computes the same (BranchLayout::kind), which may be itself; -1 for a
/// branch that is like no other.
std::vector<int> first_of_kind(const ModelLayout& layout);

}  // namespace sdp
