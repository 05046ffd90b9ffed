#pragma once

#include <algorithm>
#include <cstdint>

namespace sdp {

/// Number of rows whose logits a language model's loss computes together (model/linear_cross_entropy.h): at
/// most 16 MiB of fp32 logits, which a CPU's cache may hold, but at least 64 rows, or 4,096 with device
/// kernels (ops/availability.h). With fewer rows, the products are slow.
constexpr int64_t logit_rows_at_a_time(int64_t vocabulary, bool device_kernels) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  return std::max<int64_t>(kMostElements / vocabulary, device_kernels ? 4096 : 64);
}

}  // namespace sdp
