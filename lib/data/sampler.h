#pragma once

// The order of training samples: an endless sequence of epoch permutations, indexed by global sample
// position. Independent of which process computes what.

#include <cstdint>

namespace sdp {

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
