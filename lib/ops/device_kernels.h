#pragma once

// Launches of the device kernels, for contiguous arrays on the current device. T is double, float or
// c10::BFloat16, and P is T or float. The CUDA compiler sees only this header, not ATen's.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/lanes.h"

namespace sdp::device {

/// x, y [rows, width], weight [width], scale [rows].
template <class T, class P>
void rms_norm(const T* x, const P* weight, T* y, Wide<T>* scale, int64_t rows, int64_t width, double eps,
              cudaStream_t stream);

/// How many partial sums of the weight's gradient rms_norm_gradient() writes.
int64_t rms_norm_partial_sums(int64_t rows);

/// gradient, x, dx [rows, width]; weight_sums null, or [rms_norm_partial_sums(rows), width], which it fills.
template <class T, class P>
void rms_norm_gradient(const T* gradient, const T* x, const P* weight, const Wide<T>* scale, T* dx,
                       Wide<T>* weight_sums, int64_t rows, int64_t width, cudaStream_t stream);

template <class T>
void swiglu(const T* gate, const T* up, T* h, int64_t size, cudaStream_t stream);

template <class T>
void swiglu_gradient(const T* gradient, const T* gate, const T* up, T* dgate, T* dup, int64_t size,
                     cudaStream_t stream);

/// x, y [sequences, tokens, heads, 2 half]; cos, sin [tokens, half].
template <class T>
void rotate(const T* x, const Wide<T>* cos, const Wide<T>* sin, T* y, int64_t sequences, int64_t tokens,
            int heads, int half, bool inverse, cudaStream_t stream);

/// logits [rows, size], whose rows begin every `stride` elements; labels and losses [rows].
template <class T>
void cross_entropy(T* logits, const int64_t* labels, Wide<T>* losses, int64_t rows, int64_t size,
                   int64_t stride, double smoothing, bool with_gradient, cudaStream_t stream);

}  // namespace sdp::device
