#pragma once

#include <cstdint>

namespace sdp {

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every output bit depends on every input bit.
inline uint64_t scrambled(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

/// SplitMix64. It gives the same numbers with every compiler and library.
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) : state_(seed) {}

  uint64_t next() { return scrambled(state_ += 0x9e3779b97f4a7c15); }

  /// A uniform number in 0..bound-1, with a bias of at most bound / 2^32; bound must be in 1..2^31.
  int below(int bound) { return static_cast<int>((next() >> 32) * static_cast<uint64_t>(bound) >> 32); }

 private:
  uint64_t state_;
};

}  // namespace sdp
