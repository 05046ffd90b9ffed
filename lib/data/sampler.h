#pragma once

// The order of training samples: an endless sequence of epoch permutations, indexed by global sample
// position. Independent of which process computes what.

#include <array>
#include <cstdint>

namespace sdp {

/// The order of one epoch, computed position by position without a table, which would take gigabytes for a
/// large set of tokens: a Feistel network over the smallest power of 4 that is not below the set's size,
/// applied again while the result is outside the set (Black, Rogaway, "Ciphers with Arbitrary Finite
/// Domains", CT-RSA 2002, the cycle-walking and generalized-Feistel ciphers).
class EpochOrder {
 public:
  /// For `size` >= 1 samples; the round keys are the stream `epoch` of RandomPurpose::kShuffle.
  EpochOrder(int64_t size, uint64_t seed, int64_t epoch);

  /// A bijection of 0..size-1.
  int64_t index(int64_t place) const;

 private:
  static constexpr int kRounds = 8;

  uint64_t size_;
  int half_bits_;  ///< bits in each half of a position
  std::array<uint64_t, kRounds> round_keys_;
};

/// Position -> data-set index, a pure function of (dataset_size, seed, position).
class Sampler {
 public:
  /// Throws std::logic_error if dataset_size < 1.
  Sampler(int64_t dataset_size, uint64_t seed);

  /// Index at `position` >= 0: number position % dataset_size in the order of epoch position / dataset_size.
  int64_t index(int64_t position) const;

 private:
  int64_t dataset_size_;
  uint64_t seed_;
};

/// How positions are divided among batches. Pass = replica * accumulate_steps + micro_batch, so that two
/// replicas see the same samples as two accumulated micro-batches. Each pass of a step has `workers`
/// consecutive batches.
struct BatchGeometry {
  int64_t workers;
  int64_t replicas;
  int64_t accumulate_steps;
  int64_t batch_size;  ///< samples per worker and micro-batch
  /// Position of step 0; not 0, and perhaps below 0, if earlier steps had another number of samples.
  int64_t first_position = 0;

  int64_t passes_per_step() const { return replicas * accumulate_steps; }
  int64_t samples_per_step() const { return passes_per_step() * workers * batch_size; }

  /// Bijective from (step, replica, micro_batch, worker, sample) to first_position, first_position + 1, ...
  int64_t position(int64_t step, int64_t worker, int64_t replica, int64_t micro_batch, int64_t sample) const {
    const int64_t pass = replica * accumulate_steps + micro_batch;
    return first_position + ((step * passes_per_step() + pass) * workers + worker) * batch_size + sample;
  }
};

}  // namespace sdp
