#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace sdp {

/// Number of rows whose logits a language model's loss computes together (model/linear_cross_entropy.h): at
/// most 16 MiB of fp32 logits, which a CPU's cache may hold, but at least 256 rows, or 4,096 with device
/// kernels (ops/availability.h). With fewer rows, the products are slow. A power of two, as the number of
/// tokens usually is, so that the last chunk is as large as the others.
constexpr int64_t logit_rows_at_a_time(int64_t vocabulary, bool device_kernels) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  const int64_t rows = std::max<int64_t>(kMostElements / vocabulary, device_kernels ? 4096 : 256);
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
}

}  // namespace sdp
