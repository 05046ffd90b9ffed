#include "model/window_attention.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sdp {
namespace {

/// softmax(q k^T / sqrt(D) + bias) v; q, k, v [B W, A, N, D].
at::Tensor attend_unfused(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& bias) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  return q.matmul(k.transpose(-2, -1)).mul_(scale).add_(bias).softmax(-1).matmul(v);
}

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias) {
  if (q.is_cuda()) return at::scaled_dot_product_attention(q, k, v, bias);
  // On a CPU, ATen has no fused kernel for a bias that requires a gradient. Its fallback saves q, k, v and
  // the probabilities, like attend_unfused, but in fp32 even in a bf16 run.
  if (bias.requires_grad()) return attend_unfused(q, k, v, bias);
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, /*dropout_p=*/0,
                                                                     /*is_causal=*/false, bias));
}

}  // namespace

at::Tensor relative_position_index(int64_t window, at::Device device) {
  const at::Tensor position = at::arange(window, at::TensorOptions(at::kLong).device(device));
  const at::Tensor row = position.unsqueeze(1).expand({window, window}).flatten();
  const at::Tensor column = position.unsqueeze(0).expand({window, window}).flatten();
  const auto distance = [&](const at::Tensor& at_position) {
    return at_position.unsqueeze(1) - at_position.unsqueeze(0) + (window - 1);
  };
  return (distance(row) * (2 * window - 1) + distance(column)).flatten();
}

at::Tensor WindowAttention::operator()(const at::Tensor& qkv) const {
  const int64_t heads = bias_table.size(1);
  const at::Tensor split =
      qkv.view({qkv.size(0), qkv.size(1), 3, heads, -1}).permute({2, 0, 3, 1, 4});  // [3, B W, A, N, D]
  const at::Tensor &q = split[0], &k = split[1], &v = split[2];
  const at::Tensor bias = score_bias(qkv.size(0), qkv.size(1));
  return attend(q, k, v, bias).transpose(1, 2).flatten(2);
}

at::Tensor WindowAttention::score_bias(int64_t all_windows, int64_t positions) const {
  const int64_t heads = bias_table.size(1);
  const at::Tensor bias = bias_table.index_select(0, position_index)
                              .view({positions, positions, heads})
                              .permute({2, 0, 1})
                              .unsqueeze(0);
  if (!shift_mask.defined()) return bias.contiguous();
  const int64_t windows = shift_mask.size(0);
  return (bias + shift_mask.unsqueeze(1))
      .unsqueeze(0)
      .expand({all_windows / windows, windows, heads, positions, positions})
      .reshape({all_windows, heads, positions, positions});
}

}  // namespace sdp
