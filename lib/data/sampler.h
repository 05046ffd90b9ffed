#pragma once

// The order of training samples: one endless concatenation of epoch permutations, walked by global sample
// position. Which process computes what has no part in it.

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sdp {

/// Position -> data-set index, a pure function of (dataset_size, seed, position). Thread-safe.
class Sampler {
 public:
  /// Throws std::logic_error when dataset_size < 1.
  Sampler(int64_t dataset_size, uint64_t seed);

  /// Index at `position` >= 0: entry position % dataset_size of the permutation of epoch position /
  /// dataset_size.
  int64_t index(int64_t position) const;

 private:
  struct Permutation {
    int64_t epoch = -1;
    std::vector<int64_t> order;
  };

  int64_t dataset_size_;
  uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::array<Permutation, 2> cache_;  // an epoch and its neighbour, by parity
};

/// How positions are shared out. Pass = replica * accumulate_steps + micro_batch, so that two replicas see
/// what two accumulated micro-batches see; each pass of a step is `workers` consecutive batches.
struct BatchGeometry {
  int64_t workers;
  int64_t replicas;
  int64_t accumulate_steps;
  int64_t batch_size;  ///< samples of one worker in one micro-batch

  int64_t passes_per_step() const { return replicas * accumulate_steps; }
  int64_t samples_per_step() const { return passes_per_step() * workers * batch_size; }

  /// Bijective from (step, replica, micro_batch, worker, sample) to 0, 1, 2, ...
  int64_t position(int64_t step, int64_t worker, int64_t replica, int64_t micro_batch, int64_t sample) const {
    const int64_t pass = replica * accumulate_steps + micro_batch;
    return ((step * passes_per_step() + pass) * workers + worker) * batch_size + sample;
  }
};

}  // namespace sdp
