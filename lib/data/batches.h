#pragma once

// The samples of each batch: for a process's share of the training order, and for a test set.

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"
#include "subnet/slot_map.h"

namespace sdp {

/// The training batches of a process: for each step, for each micro-batch, for each of its slots as listed.
struct TrainingBatches {
  BatchGeometry geometry;
  std::vector<Slot> slots;
  int64_t first_step;
  int64_t last_step;  ///< exclusive
  uint64_t seed;      ///< for the sampler and the augmentation
  ImageAugmentation augment = {};

  int64_t count() const { return (last_step - first_step) * per_step(); }
  int64_t per_step() const { return geometry.accumulate_steps * static_cast<int64_t>(slots.size()); }
  /// Throws std::logic_error for members out of range.
  void check() const;
  /// The samples of batch `number` in 0..count()-1, for a data set of this size.
  std::vector<TrainingSample> samples(int64_t number, int64_t dataset_size) const;
};

/// `count` of the numbers 0..size-1, ascending: the i-th is floor(i * size / count). All of them if `count`
/// exceeds `size`.
std::vector<int64_t> evenly_spread(int64_t count, int64_t size);

/// Divides samples into batches in order. A process gets every `stride`-th batch, beginning with
/// `first_batch`.
struct EvalBatches {
  std::vector<int64_t> samples;  ///< indices in the data set
  int64_t batch_size;
  int64_t first_batch = 0;
  int64_t stride = 1;

  int64_t count() const;
  /// Samples of batch `number` in 0..count()-1. The last batch of the data set may be shorter.
  std::span<const int64_t> batch(int64_t number) const;
};

}  // namespace sdp
