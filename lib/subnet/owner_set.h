#pragma once

#include <vector>

namespace sdp {

/// Worker numbers that hold a unit: ascending, distinct, in 0..n-1.
using OwnerSet = std::vector<int>;

}  // namespace sdp
