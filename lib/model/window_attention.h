#pragma once

// Attention within windows of a map, with a learned bias by relative position (Liu et al. 2021).
//
// Letters: B batch, W windows of a map, w side of a window, N = w w positions of a window, A heads, D
// elements of a head.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sdp {

/// Which row of a relative position bias table stands for a pair of positions of a window: int64 [N N], entry
/// q N + k for query q and key k. Torchvision's state dict has it for every attention as the buffer
/// `attn.relative_position_index`; it is the same constant for all of them and no parameter, so that the
/// layout does not have it and whoever writes a file for torchvision must write it.
at::Tensor relative_position_index(int64_t window);

struct WindowAttention {
  at::Tensor bias_table;      // [(2 w - 1)^2, A]
  at::Tensor position_index;  // [N N]
  at::Tensor shift_mask;      // [W, N, N]; undefined: windows are not shifted

  /// softmax(q k^T / sqrt(D) + bias) v of every head: qkv [B W, N, 3 A D] -> [B W, N, A D].
  at::Tensor operator()(const at::Tensor& qkv) const;

 private:
  /// [B W, A, N, N] or [1, A, N, N], what is added to the scores.
  at::Tensor score_bias(int64_t all_windows, int64_t positions) const;
};

}  // namespace sdp
