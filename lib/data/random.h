#pragma once

// Random numbers that are a pure function of (seed, purpose, stream, number of earlier draws): independent of
// threads, processes and draws for other samples.

#include <array>
#include <cstdint>

namespace sdp {

/// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What numbers are drawn for. The numeric values determine the results of a seed: append, never renumber.
enum class RandomPurpose : uint32_t {
  kShuffle = 0,
  kCrop = 1,
  kFlip = 2,
  kMix = 3,
  kDropout = 4,
  kResizedCrop = 5
};

/// One stream of numbers. Key: the seed. Counter: (block of the stream, purpose, stream), 32 + 32 + 64 bits,
/// so that no two streams of a seed share a block.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, RandomPurpose purpose, uint64_t stream)
      : seed_(seed), stream_(stream), purpose_(static_cast<uint32_t>(purpose)) {}

  /// 64 uniform bits. A stream has 2^33 of them; drawing more throws std::logic_error.
  uint64_t next();

  /// Uniform in 0..n-1 without bias, n >= 1. Lemire, "Fast Random Integer Generation in an Interval" (2019).
  uint64_t below(uint64_t n);

  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform();

  /// Draws from Beta(alpha, alpha), in [0, 1], as x / (x + y) of two draws from Gamma(alpha, 1). alpha must
  /// be positive.
  double symmetric_beta(double alpha);

 private:
  /// Draws from the standard normal distribution: Box and Muller, "A Note on the Generation of Random Normal
  /// Deviates" (1958), using only the cosine.
  double normal();

  /// Logarithm of a draw from Gamma(shape, 1), for shapes so small that the draw itself would underflow to 0.
  /// Marsaglia, Tsang, "A Simple Method for Generating Gamma Variables" (2000); below 1 with their Gamma(a) =
  /// Gamma(a + 1) * U^(1/a).
  double log_gamma_variate(double shape);

  uint64_t seed_;
  uint64_t stream_;
  uint32_t purpose_;
  uint64_t block_ = 0;
  uint64_t second_half_ = 0;
  bool has_second_half_ = false;
};

}  // namespace sdp
