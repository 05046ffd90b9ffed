#pragma once

#include <algorithm>
#include <cstdint>

namespace sdp {

/// Rows whose logits a language model's loss computes together (model/linear_cross_entropy.h): in fp32 they
/// take at most 64 MiB, but they are 64 at least.
constexpr int64_t logit_rows_at_a_time(int64_t vocabulary) {
  constexpr int64_t kMostElements = int64_t{1} << 24;
  constexpr int64_t kFewestRows = 64;  // below it the products are slow
  return std::max(kMostElements / vocabulary, kFewestRows);
}

}  // namespace sdp
