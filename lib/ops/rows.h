#pragma once

// Bodies of the device kernels: each computes one row, with the lanes that share it. T: type of the elements;
// P: of a norm's parameters; N: elements of a pack, which must divide the row and be aligned, except in
// cross_entropy_row.

#include <cmath>

#include "ops/lanes.h"

namespace sdp {

/// y = weight * x * scale with scale = (mean(x^2) + eps)^(-1/2), x * scale being rounded to T before the
/// product.
template <int N, class T, class P, class Lanes>
SDP_HOST_DEVICE void rms_norm_row(const Lanes& lanes, const T* x, const P* weight, T* y, Wide<T>* scale,
                                  int64_t width, Wide<T> eps) {
  using A = Wide<T>;
  A squares = 0;
  for_each_pack<N>(lanes, width, [&](int64_t i) {
    const Pack<T, N> in = load<N>(x + i);
    for (int k = 0; k < N; ++k)
      squares += static_cast<A>(in[k]) * static_cast<A>(in[k]);
  });
  const A s = A(1) / std::sqrt(lanes.sum(squares) / static_cast<A>(width) + eps);
  if (lanes.index() == 0) *scale = s;
  for_each_pack<N>(lanes, width, [&](int64_t i) {
    const Pack<T, N> in = load<N>(x + i);
    const Pack<P, N> w = load<N>(weight + i);
    Pack<T, N> out;
    for (int k = 0; k < N; ++k) {
      const T normed = static_cast<T>(static_cast<A>(in[k]) * s);
      out[k] = static_cast<T>(static_cast<A>(normed) * static_cast<A>(w[k]));
    }
    store<N>(y + i, out);
  });
}

/// With n = scale * x and g = weight * gradient: dx = scale * (g - n mean(g n)). If `weight_sums` is given,
/// adds gradient * n to it; an element always belongs to the same lane.
template <int N, class T, class P, class Lanes>
SDP_HOST_DEVICE void rms_norm_gradient_row(const Lanes& lanes, const T* gradient, const T* x, const P* weight,
                                           Wide<T> scale, T* dx, Wide<T>* weight_sums, int64_t width) {
  using A = Wide<T>;
  A product = 0;
  for_each_pack<N>(lanes, width, [&](int64_t i) {
    const Pack<T, N> in = load<N>(x + i), out = load<N>(gradient + i);
    const Pack<P, N> w = load<N>(weight + i);
    for (int k = 0; k < N; ++k)
      product += static_cast<A>(out[k]) * static_cast<A>(w[k]) * (static_cast<A>(in[k]) * scale);
  });
  const A mean = lanes.sum(product) / static_cast<A>(width);
  for_each_pack<N>(lanes, width, [&](int64_t i) {
    const Pack<T, N> in = load<N>(x + i), out = load<N>(gradient + i);
    const Pack<P, N> w = load<N>(weight + i);
    Pack<T, N> result;
    for (int k = 0; k < N; ++k) {
      const A normed = static_cast<A>(in[k]) * scale;
      result[k] = static_cast<T>((static_cast<A>(out[k]) * static_cast<A>(w[k]) - normed * mean) * scale);
      if (weight_sums) weight_sums[i + k] += static_cast<A>(out[k]) * normed;
    }
    store<N>(dx + i, result);
  });
}

/// h = silu(gate) * up.
template <int N, class T, class Lanes>
SDP_HOST_DEVICE void swiglu_row(const Lanes& lanes, const T* gate, const T* up, T* h, int64_t size) {
  using A = Wide<T>;
  for_each_pack<N>(lanes, size, [&](int64_t i) {
    const Pack<T, N> g = load<N>(gate + i), u = load<N>(up + i);
    Pack<T, N> out;
    for (int k = 0; k < N; ++k) {
      const A a = static_cast<A>(g[k]);
      out[k] = static_cast<T>(a / (A(1) + std::exp(-a)) * static_cast<A>(u[k]));
    }
    store<N>(h + i, out);
  });
}

/// With s = sigmoid(gate): dgate = gradient * up * s (1 + gate (1 - s)), dup = gradient * gate s.
template <int N, class T, class Lanes>
SDP_HOST_DEVICE void swiglu_gradient_row(const Lanes& lanes, const T* gradient, const T* gate, const T* up,
                                         T* dgate, T* dup, int64_t size) {
  using A = Wide<T>;
  for_each_pack<N>(lanes, size, [&](int64_t i) {
    const Pack<T, N> out = load<N>(gradient + i), g = load<N>(gate + i), u = load<N>(up + i);
    Pack<T, N> of_gate, of_up;
    for (int k = 0; k < N; ++k) {
      const A a = static_cast<A>(g[k]), d = static_cast<A>(out[k]);
      const A s = A(1) / (A(1) + std::exp(-a));
      of_gate[k] = static_cast<T>(d * static_cast<A>(u[k]) * s * (A(1) + a * (A(1) - s)));
      of_up[k] = static_cast<T>(d * a * s);
    }
    store<N>(dgate + i, of_gate);
    store<N>(dup + i, of_up);
  });
}

/// Rotates the pairs (i, i + half) of the heads of one token by the angles of i, [half]; backwards if
/// `inverse`.
template <int N, class T, class Lanes>
SDP_HOST_DEVICE void rotate_row(const Lanes& lanes, const T* x, const Wide<T>* cos, const Wide<T>* sin, T* y,
                                int heads, int half, bool inverse) {
  using A = Wide<T>;
  for_each_pack<N>(lanes, int64_t{heads} * half, [&](int64_t pair) {
    const int head = static_cast<int>(pair) / half, i = static_cast<int>(pair) - head * half;
    const int64_t at = int64_t{head} * 2 * half + i;
    const Pack<T, N> a = load<N>(x + at), b = load<N>(x + at + half);
    const Pack<A, N> c = load<N>(cos + i), s = load<N>(sin + i);
    Pack<T, N> first, second;
    for (int k = 0; k < N; ++k) {
      const A sine = inverse ? -s[k] : s[k];
      first[k] = static_cast<T>(static_cast<A>(a[k]) * c[k] - static_cast<A>(b[k]) * sine);
      second[k] = static_cast<T>(static_cast<A>(b[k]) * c[k] + static_cast<A>(a[k]) * sine);
    }
    store<N>(y + at, first);
    store<N>(y + at + half, second);
  });
}

/// A row's cross-entropy with label smoothing s, for z the logits: log sum exp z - (1 - s) z_label - s mean
/// z. With `with_gradient`, the logits become softmax z - (1 - s) onehot(label) - s / size.
template <int N, class T, class Lanes>
SDP_HOST_DEVICE Wide<T> cross_entropy_row(const Lanes& lanes, T* logits, int64_t label, int64_t size,
                                          Wide<T> smoothing, bool with_gradient) {
  using A = Wide<T>;
  A highest = -INFINITY, exponentials = 0, total = 0;
  for_each_aligned_pack<N>(lanes, logits, size, [&](auto n, int64_t i) {
    const Pack<T, n.value> z = load<n.value>(logits + i);
    A top = highest;
    for (int k = 0; k < n.value; ++k)
      top = top < static_cast<A>(z[k]) ? static_cast<A>(z[k]) : top;
    if (top > highest) exponentials *= std::exp(highest - top);
    highest = top;
    for (int k = 0; k < n.value; ++k) {
      exponentials += std::exp(static_cast<A>(z[k]) - top);
      total += static_cast<A>(z[k]);
    }
  });
  const A row_highest = lanes.max(highest);
  if (exponentials != 0) exponentials *= std::exp(highest - row_highest);
  const A log_sum = row_highest + std::log(lanes.sum(exponentials));
  const A of_label = static_cast<A>(logits[label]);
  const A loss =
      log_sum - (A(1) - smoothing) * of_label - smoothing * lanes.sum(total) / static_cast<A>(size);
  if (!with_gradient) return loss;
  const A each = smoothing / static_cast<A>(size);
  for_each_aligned_pack<N>(lanes, logits, size, [&](auto n, int64_t i) {
    Pack<T, n.value> z = load<n.value>(logits + i);
    for (int k = 0; k < n.value; ++k) {
      const A chosen = i + k == label ? A(1) - smoothing : A(0);
      z[k] = static_cast<T>(std::exp(static_cast<A>(z[k]) - log_sum) - chosen - each);
    }
    store<n.value>(logits + i, z);
  });
  return loss;
}

}  // namespace sdp
