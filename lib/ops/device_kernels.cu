#include "ops/device_kernels.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "ops/rows.h"

namespace sdp::device {
namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 512;

/// The threads of a block. Every thread of it must call sum() and max().
struct BlockLanes {
  __device__ static int index() { return static_cast<int>(threadIdx.x); }
  __device__ static int count() { return static_cast<int>(blockDim.x); }

  template <class A, class Combine>
  __device__ static A combined(A value, A neutral, Combine combine) {
    __shared__ A of_warps[kWarp];
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    if (index() % kWarp == 0) of_warps[index() / kWarp] = value;
    __syncthreads();
    value = index() % kWarp < count() / kWarp ? of_warps[index() % kWarp] : neutral;
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();  // before of_warps is written again
    return value;
  }
  template <class A>
  __device__ static A sum(A value) {
    return combined(value, A(0), [](A a, A b) { return a + b; });
  }
  template <class A>
  __device__ static A max(A value) {
    return combined(value, A(-INFINITY), [](A a, A b) { return a < b ? b : a; });
  }
};

/// The threads of the whole grid.
struct GridLanes {
  __device__ static int64_t index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
  __device__ static int64_t count() { return int64_t{gridDim.x} * blockDim.x; }
};

template <int N, class T, class P>
__global__ void rms_norm_kernel(const T* x, const P* weight, T* y, Wide<T>* scale, int64_t width,
                                Wide<T> eps) {
  const int64_t row = blockIdx.x;
  rms_norm_row<N>(BlockLanes(), x + row * width, weight, y + row * width, scale + row, width, eps);
}

template <int N, class T, class P>
__global__ void rms_norm_gradient_kernel(const T* gradient, const T* x, const P* weight, const Wide<T>* scale,
                                         T* dx, Wide<T>* weight_sums, bool is_shared, int64_t rows,
                                         int64_t width) {
  extern __shared__ __align__(16) unsigned char shared[];
  using A = Wide<T>;
  A* const of_block = weight_sums ? weight_sums + blockIdx.x * width : nullptr;
  A* const sums = of_block && is_shared ? reinterpret_cast<A*>(shared) : of_block;
  const auto for_each_sum = [&](auto use) {  // a lane's own: no lane needs those of others
    for_each_pack<N>(BlockLanes(), width, [&](int64_t i) {
      for (int k = 0; k < N; ++k)
        use(i + k);
    });
  };
  if (sums) for_each_sum([&](int64_t i) { sums[i] = 0; });
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    rms_norm_gradient_row<N>(BlockLanes(), gradient + row * width, x + row * width, weight, scale[row],
                             dx + row * width, sums, width);
  if (sums != of_block) for_each_sum([&](int64_t i) { of_block[i] = sums[i]; });
}

template <int N, class T>
__global__ void swiglu_kernel(const T* gate, const T* up, T* h, int64_t size) {
  swiglu_row<N>(GridLanes(), gate, up, h, size);
}

template <int N, class T>
__global__ void swiglu_gradient_kernel(const T* gradient, const T* gate, const T* up, T* dgate, T* dup,
                                       int64_t size) {
  swiglu_gradient_row<N>(GridLanes(), gradient, gate, up, dgate, dup, size);
}

template <int N, class T>
__global__ void rotate_kernel(const T* x, const Wide<T>* cos, const Wide<T>* sin, T* y, int64_t tokens,
                              int heads, int half, bool inverse) {
  const int64_t row = blockIdx.x, token = row % tokens, width = int64_t{2} * heads * half;
  rotate_row<N>(BlockLanes(), x + row * width, cos + token * half, sin + token * half, y + row * width, heads,
                half, inverse);
}

template <int N, class T>
__global__ void cross_entropy_kernel(T* logits, const int64_t* labels, Wide<T>* losses, int64_t size,
                                     int64_t stride, Wide<T> smoothing, bool with_gradient) {
  const int64_t row = blockIdx.x;
  const Wide<T> loss =
      cross_entropy_row<N>(BlockLanes(), logits + row * stride, labels[row], size, smoothing, with_gradient);
  if (threadIdx.x == 0) losses[row] = loss;
}

template <class T>
constexpr int kPack = 16 / sizeof(T);

/// Whether rows of this many elements can be read in packs from the pointers.
template <class T, class... Pointers>
bool takes_packs(int64_t width, Pointers... pointers) {
  return width % kPack<T> == 0 && (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
}

unsigned int threads_for(int64_t packs) {
  return static_cast<unsigned int>(
      std::clamp<int64_t>((packs + kWarp - 1) / kWarp * kWarp, kWarp, kMostThreads));
}

unsigned int blocks_for(int64_t packs, unsigned int threads) {
  constexpr int64_t kMostBlocks = 1 << 16;
  return static_cast<unsigned int>(std::clamp<int64_t>((packs + threads - 1) / threads, 1, kMostBlocks));
}

void check_launch() {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("launch of a kernel: ") + cudaGetErrorString(error));
}

/// Calls `launch` with the number of elements of a pack as a type.
template <class T, class Launch>
void with_pack(bool takes, Launch launch) {
  if (takes)
    launch(std::integral_constant<int, kPack<T>>());
  else
    launch(std::integral_constant<int, 1>());
  check_launch();
}

}  // namespace

template <class T, class P>
void rms_norm(const T* x, const P* weight, T* y, Wide<T>* scale, int64_t rows, int64_t width, double eps,
              cudaStream_t stream) {
  if (rows == 0) return;
  with_pack<T>(takes_packs<T>(width, x, weight, y), [&](auto n) {
    rms_norm_kernel<n.value><<<static_cast<unsigned int>(rows), threads_for(width / n.value), 0, stream>>>(
        x, weight, y, scale, width, static_cast<Wide<T>>(eps));
  });
}

int64_t rms_norm_partial_sums(int64_t rows) {
  constexpr int64_t kMostBlocks = 1056;  // eight on each of 132 multiprocessors
  return std::min(rows, kMostBlocks);
}

template <class T, class P>
void rms_norm_gradient(const T* gradient, const T* x, const P* weight, const Wide<T>* scale, T* dx,
                       Wide<T>* weight_sums, int64_t rows, int64_t width, cudaStream_t stream) {
  if (rows == 0) return;
  const int64_t blocks = weight_sums ? rms_norm_partial_sums(rows) : rows;
  constexpr size_t kSharedBytes = 32 << 10;  // of the 48 KiB that every launch may have
  const size_t row_bytes = static_cast<size_t>(width) * sizeof(Wide<T>);
  const bool is_shared = weight_sums && row_bytes <= kSharedBytes;
  with_pack<T>(takes_packs<T>(width, gradient, x, weight, dx, weight_sums), [&](auto n) {
    rms_norm_gradient_kernel<n.value>
        <<<static_cast<unsigned int>(blocks), threads_for(width / n.value), is_shared ? row_bytes : 0,
           stream>>>(gradient, x, weight, scale, dx, weight_sums, is_shared, rows, width);
  });
}

template <class T>
void swiglu(const T* gate, const T* up, T* h, int64_t size, cudaStream_t stream) {
  if (size == 0) return;
  with_pack<T>(takes_packs<T>(size, gate, up, h), [&](auto n) {
    const unsigned int threads = 256;
    swiglu_kernel<n.value><<<blocks_for(size / n.value, threads), threads, 0, stream>>>(gate, up, h, size);
  });
}

template <class T>
void swiglu_gradient(const T* gradient, const T* gate, const T* up, T* dgate, T* dup, int64_t size,
                     cudaStream_t stream) {
  if (size == 0) return;
  with_pack<T>(takes_packs<T>(size, gradient, gate, up, dgate, dup), [&](auto n) {
    const unsigned int threads = 256;
    swiglu_gradient_kernel<n.value>
        <<<blocks_for(size / n.value, threads), threads, 0, stream>>>(gradient, gate, up, dgate, dup, size);
  });
}

template <class T>
void rotate(const T* x, const Wide<T>* cos, const Wide<T>* sin, T* y, int64_t sequences, int64_t tokens,
            int heads, int half, bool inverse, cudaStream_t stream) {
  if (sequences * tokens * heads * half == 0) return;
  with_pack<T>(takes_packs<T>(half, x, cos, sin, y), [&](auto n) {
    rotate_kernel<n.value>
        <<<static_cast<unsigned int>(sequences * tokens), threads_for(heads * half / n.value), 0, stream>>>(
            x, cos, sin, y, tokens, heads, half, inverse);
  });
}

template <class T>
void cross_entropy(T* logits, const int64_t* labels, Wide<T>* losses, int64_t rows, int64_t size,
                   int64_t stride, double smoothing, bool with_gradient, cudaStream_t stream) {
  if (rows == 0) return;
  constexpr int n = kPack<T>;
  cross_entropy_kernel<n><<<static_cast<unsigned int>(rows), threads_for(size / n), 0, stream>>>(
      logits, labels, losses, size, stride, static_cast<Wide<T>>(smoothing), with_gradient);
  check_launch();
}

#define SDP_FOR_NORM(T, P)                                                                                   \
  template void rms_norm<T, P>(const T*, const P*, T*, Wide<T>*, int64_t, int64_t, double, cudaStream_t);    \
  template void rms_norm_gradient<T, P>(const T*, const T*, const P*, const Wide<T>*, T*, Wide<T>*, int64_t, \
                                        int64_t, cudaStream_t);
#define SDP_FOR_TYPE(T)                                                                                   \
  template void swiglu<T>(const T*, const T*, T*, int64_t, cudaStream_t);                                 \
  template void swiglu_gradient<T>(const T*, const T*, const T*, T*, T*, int64_t, cudaStream_t);          \
  template void rotate<T>(const T*, const Wide<T>*, const Wide<T>*, T*, int64_t, int64_t, int, int, bool, \
                          cudaStream_t);                                                                  \
  template void cross_entropy<T>(T*, const int64_t*, Wide<T>*, int64_t, int64_t, int64_t, double, bool,   \
                                 cudaStream_t);

SDP_FOR_NORM(double, double)
SDP_FOR_NORM(float, float)
SDP_FOR_NORM(c10::BFloat16, float)
SDP_FOR_NORM(c10::BFloat16, c10::BFloat16)
SDP_FOR_TYPE(double)
SDP_FOR_TYPE(float)
SDP_FOR_TYPE(c10::BFloat16)

}  // namespace sdp::device
