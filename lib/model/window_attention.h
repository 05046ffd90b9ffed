#pragma once

// Attention within windows of a map, with a learned relative position bias (Liu et al. 2021).
//
// Letters: B batch, W windows per map, w side of a window, N = w w positions per window, A heads, D elements
// per head.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sdp {

/// For each pair of positions in a window, the row of the relative position bias table: int64 [N N], with
/// entry q N + k for query q and key k. torchvision's state dict contains it for every attention, as the
/// buffer `attn.relative_position_index`. It is a constant, the same for all of them, so the layout does not
/// contain it; code that writes a file for torchvision must add it.
at::Tensor relative_position_index(int64_t window, at::Device device = at::kCPU);

struct WindowAttention {
  at::Tensor bias_table;      // [(2 w - 1)^2, A]
  at::Tensor position_index;  // [N N]
  at::Tensor shift_mask;      // [W, N, N]; undefined if windows are not shifted

  /// softmax(q k^T / sqrt(D) + bias) v for every head: qkv [B W, N, 3 A D] -> [B W, N, A D].
  at::Tensor operator()(const at::Tensor& qkv) const;

 private:
  /// The bias added to the scores, [B W, A, N, N] or [1, A, N, N].
  at::Tensor score_bias(int64_t all_windows, int64_t positions) const;
};

}  // namespace sdp
