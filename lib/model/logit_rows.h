#pragma once

#include <algorithm>
#include <cstdint>

namespace sdp {

/// Number of rows whose logits a language model's loss computes together (model/linear_cross_entropy.h): at
/// most 64 MiB of fp32 logits, but at least 64 rows.
constexpr int64_t logit_rows_at_a_time(int64_t vocabulary) {
  constexpr int64_t kMostElements = int64_t{1} << 24;
  constexpr int64_t kFewestRows = 64;  // with fewer rows, the products are slow
  return std::max(kMostElements / vocabulary, kFewestRows);
}

}  // namespace sdp
