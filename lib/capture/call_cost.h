#pragma once

// What an operator computes and moves, from the shapes of a call. The only place that knows operators by
// name, besides the copies of CPU kernels (capture/kernel_copies.h).

#include <vector>

#include "capture/recorded_call.h"

namespace sdp {

struct ProductSize {
  double m = 0, k = 0, n = 0;
  double count = 1;
  double computed = 1;  ///< as in Product
};

struct CallCost {
  std::vector<ProductSize> products;
  double bytes = 0;  ///< read and written: every argument and result once
};

/// For the batch that was recorded.
CallCost cost_of(const RecordedCall& call);

}  // namespace sdp
