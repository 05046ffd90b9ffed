#include "formats/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

// GCC compiles a second version of these functions for CPUs with AVX2, and selects one at program start.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define SDP_ALSO_FOR_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define SDP_ALSO_FOR_AVX2
#endif

namespace sdp {

namespace {

constexpr int kWeightBits = 22;  // 8 bits per pixel, 2 to spare in 32
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

/// The weights along one axis: output i is the sum of `weights[i * taps + t] * source[first[i] + t]`.
struct AxisWeights {
  int64_t taps;
  std::vector<int64_t> first;
  std::vector<int32_t> weights;

  int64_t begin() const { return first.front(); }
  int64_t end() const { return first.back() + taps; }
};

double scale_of(double length, int64_t size) {
  return length / static_cast<double>(size);
}

/// Source pixels low..high-1 that contribute to output i; `center` is its position in the source.
struct Reach {
  double center;
  int64_t low;
  int64_t high;
};

/// All outputs have the same number of taps, some with weight 0; all taps lie within 0..source_length-1.
AxisWeights axis_weights(double begin, double end, int64_t size, int64_t source_length) {
  const double scale = scale_of(end - begin, size);
  const double reach = resize_reach(end - begin, size);
  std::vector<Reach> outputs;
  outputs.reserve(static_cast<size_t>(size));
  int64_t taps = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double center = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto low = std::max<int64_t>(static_cast<int64_t>(std::floor(center - reach + 0.5)), 0);
    const auto high =
        std::min<int64_t>(static_cast<int64_t>(std::floor(center + reach + 0.5)), source_length);
    outputs.push_back({.center = center, .low = low, .high = high});
    taps = std::max(taps, high - low);
  }

  AxisWeights axis{.taps = taps, .first = {}, .weights = {}};
  axis.first.reserve(outputs.size());
  axis.weights.reserve(outputs.size() * static_cast<size_t>(taps));
  std::vector<double> exact(static_cast<size_t>(taps));
  for (const auto& [center, low, high] : outputs) {
    const int64_t first = std::min(low, source_length - taps);
    double sum = 0;
    for (int64_t t = 0; t < taps; ++t) {
      const int64_t x = first + t;
      const double distance = std::abs(static_cast<double>(x) - center + 0.5) / reach;
      double& weight = exact[static_cast<size_t>(t)];
      weight = x < low || x >= high ? 0 : std::max(1 - distance, 0.0);
      sum += weight;
    }
    axis.first.push_back(first);
    for (const double weight : exact)
      axis.weights.push_back(static_cast<int32_t>(std::lround(weight / sum * (1 << kWeightBits))));
  }
  return axis;
}

// The lanes of a vector register: a pixel of one row, then the pixel below it.
constexpr int64_t kLanes = 2 * kPixelBytes;
using Lanes = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

/// Processes two rows at once, into rows of planes [3, size]. `wide` has room for kLanes numbers per pixel of
/// a row.
SDP_ALSO_FOR_AVX2
void resize_two_rows(const uint8_t* __restrict upper, const uint8_t* __restrict lower, int64_t width,
                     const AxisWeights& axis, int32_t* __restrict wide, uint8_t* __restrict upper_out,
                     uint8_t* __restrict lower_out) {
  for (int64_t x = 0; x < width; ++x)
    for (int64_t lane = 0; lane < kPixelBytes; ++lane) {
      wide[x * kLanes + lane] = upper[x * kPixelBytes + lane];
      wide[x * kLanes + kPixelBytes + lane] = lower[x * kPixelBytes + lane];
    }
  const auto size = static_cast<int64_t>(axis.first.size());
  const int32_t* weight = axis.weights.data();
  for (int64_t i = 0; i < size; ++i) {
    const int32_t* source = wide + axis.first[static_cast<size_t>(i)] * kLanes;
    Lanes sum = Lanes{} + kHalf;
    for (int64_t t = 0; t < axis.taps; ++t) {
      Lanes pixels;
      std::memcpy(&pixels, source + t * kLanes, sizeof pixels);
      sum += pixels * *weight++;
    }
    sum >>= kWeightBits;
    for (int channel = 0; channel < 3; ++channel) {
      upper_out[channel * size + i] = static_cast<uint8_t>(sum[channel]);
      lower_out[channel * size + i] = static_cast<uint8_t>(sum[channel + 4]);
    }
  }
}

/// out[x] = sum of weights[t] * rows[t * length + x], rounded. `sums` has room for `length`.
SDP_ALSO_FOR_AVX2
void mix_rows(const uint8_t* __restrict rows, const int32_t* __restrict weights, int64_t taps, int64_t length,
              int32_t* __restrict sums, uint8_t* __restrict out) {
  std::fill_n(sums, length, kHalf);
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t x = 0; x < length; ++x)
      sums[x] += rows[t * length + x] * weights[t];
  for (int64_t x = 0; x < length; ++x)
    out[x] = static_cast<uint8_t>(sums[x] >> kWeightBits);
}

}  // namespace

double resize_reach(double length, int64_t size) {
  return std::max(scale_of(length, size), 1.0);
}

void resize_bilinear(const Pixels& source, const Window& window, int64_t size, std::span<uint8_t> chw) {
  if (!(window.left >= 0 && window.top >= 0 && window.right > window.left && window.bottom > window.top &&
        window.right <= static_cast<double>(source.width()) &&
        window.bottom <= static_cast<double>(source.height())) ||
      size < 1 || static_cast<int64_t>(chw.size()) != 3 * size * size)
    throw std::logic_error("resize_bilinear: a window or a span that does not fit");
  const AxisWeights across = axis_weights(window.left, window.right, size, source.width());
  const AxisWeights down = axis_weights(window.top, window.bottom, size, source.height());

  const int64_t row_bytes = 3 * size;
  const int64_t rows = down.end() - down.begin();
  // [rows, 3, size]; an odd last row is computed twice.
  const auto narrow = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(rows * row_bytes));
  std::vector<int32_t> wide(static_cast<size_t>(source.width() * kLanes));
  for (int64_t y = 0; y < rows; y += 2) {
    const int64_t next = std::min(y + 1, rows - 1);
    resize_two_rows(source.row(down.begin() + y), source.row(down.begin() + next), source.width(), across,
                    wide.data(), narrow.get() + y * row_bytes, narrow.get() + next * row_bytes);
  }

  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  std::vector<uint8_t> mixed(static_cast<size_t>(row_bytes));
  for (int64_t y = 0; y < size; ++y) {
    const int64_t first = down.first[static_cast<size_t>(y)] - down.begin();
    mix_rows(narrow.get() + first * row_bytes, down.weights.data() + y * down.taps, down.taps, row_bytes,
             sums.data(), mixed.data());
    for (int64_t channel = 0; channel < 3; ++channel)
      std::copy_n(mixed.data() + channel * size, size, chw.data() + (channel * size + y) * size);
  }
}

}  // namespace sdp
