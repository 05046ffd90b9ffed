#pragma once

#include <vector>

namespace sdp {

/// The workers that own a unit: ascending, distinct numbers in 0..n-1.
using OwnerSet = std::vector<int>;

}  // namespace sdp
