#include "data/batches.h"

#include <algorithm>
#include <stdexcept>

namespace sdp {

void TrainingBatches::check() const {
  const bool slots_fit = std::all_of(slots.begin(), slots.end(), [&](const SlotId& slot) {
    return slot.worker >= 0 && slot.worker < geometry.workers && slot.replica >= 0 &&
           slot.replica < geometry.replicas;
  });
  if (geometry.samples_per_step() < 1 || geometry.accumulate_steps < 1 || geometry.batch_size < 1 ||
      !slots_fit || first_step < 0 || last_step < first_step)
    throw std::logic_error("TrainingBatches: out of range");
}

std::vector<TrainingSample> TrainingBatches::samples(int64_t number, int64_t dataset_size) const {
  const auto number_of_slots = static_cast<int64_t>(slots.size());
  const SlotId slot = slots[static_cast<size_t>(number % number_of_slots)];
  const int64_t micro_batch = number / number_of_slots % geometry.accumulate_steps;
  const int64_t step = first_step + number / per_step();

  const Sampler sampler(dataset_size, seed);
  std::vector<TrainingSample> samples;
  for (int64_t i = 0; i < geometry.batch_size; ++i) {
    const int64_t position = geometry.position(step, slot.worker, slot.replica, micro_batch, i);
    samples.push_back({.position = position, .index = sampler.index(position)});
  }
  return samples;
}

int64_t EvalBatches::count(int64_t dataset_size) const {
  const int64_t batches = (dataset_size + batch_size - 1) / batch_size;
  return std::max<int64_t>(0, (batches - first_batch + stride - 1) / stride);
}

SampleRange EvalBatches::range(int64_t number, int64_t dataset_size) const {
  const int64_t begin = (first_batch + number * stride) * batch_size;
  return {.begin = begin, .end = std::min(begin + batch_size, dataset_size)};
}

}  // namespace sdp
