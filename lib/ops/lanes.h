#pragma once

// What the bodies of device kernels (ops/rows.h) share: one body is compiled for the host, where tests
// compare it with other formulas, and for devices.

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define SDP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SDP_HOST_DEVICE inline
#endif

namespace sdp {

/// The type in which a kernel computes with elements of type T.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// N consecutive elements, read and written as one access of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Pack {
  T values[N];
  SDP_HOST_DEVICE T& operator[](int i) { return values[i]; }
  SDP_HOST_DEVICE const T& operator[](int i) const { return values[i]; }
};

template <int N, class T>
SDP_HOST_DEVICE Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, class T>
SDP_HOST_DEVICE void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Calls `use(i)` for every N-th element of [0, size) that belongs to the lane. N must divide the size.
template <int N, class Lanes, class Use>
SDP_HOST_DEVICE void for_each_pack(const Lanes& lanes, int64_t size, Use use) {
  for (int64_t i = int64_t{N} * lanes.index(); i < size; i += int64_t{N} * lanes.count())
    use(i);
}

/// Calls `use(n, i)` for every element i of a row that belongs to the lane, or the first of n elements that
/// do, where n is std::integral_constant N for those that are aligned to packs, and 1 at the row's ends.
template <int N, class T, class Lanes, class Use>
SDP_HOST_DEVICE void for_each_aligned_pack(const Lanes& lanes, const T* row, int64_t size, Use use) {
  constexpr int64_t kBytes = sizeof(T) * N;
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % kBytes);
  const int64_t missing = (kBytes - misaligned) % kBytes / static_cast<int64_t>(sizeof(T));
  const int64_t head = missing < size ? missing : size;
  const int64_t packed = head + (size - head) / N * N;
  const int64_t lane = lanes.index(), count = lanes.count();
  for (int64_t i = lane; i < head; i += count)
    use(std::integral_constant<int, 1>(), i);
  for (int64_t i = head + N * lane; i < packed; i += N * count)
    use(std::integral_constant<int, N>(), i);
  for (int64_t i = packed + lane; i < size; i += count)
    use(std::integral_constant<int, 1>(), i);
}

/// The host's: one lane does the work of all. A device's are the threads of a block (ops/device_kernels.cu).
struct OneLane {
  static constexpr int index() { return 0; }
  static constexpr int count() { return 1; }
  template <class A>
  A sum(A value) const {
    return value;
  }
  template <class A>
  A max(A value) const {
    return value;
  }
};

}  // namespace sdp
