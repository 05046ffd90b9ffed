#include "data/batches.h"

#include <algorithm>
#include <stdexcept>

namespace sdp {

void TrainingBatches::check() const {
  const bool slots_fit = std::all_of(slots.begin(), slots.end(), [&](const Slot& slot) {
    return slot.worker >= 0 && slot.worker < geometry.workers && slot.replica >= 0 &&
           slot.replica < geometry.replicas;
  });
  if (geometry.samples_per_step() < 1 || geometry.accumulate_steps < 1 || geometry.batch_size < 1 ||
      !slots_fit || first_step < 0 || last_step < first_step)
    throw std::logic_error("TrainingBatches: out of range");
}

std::vector<TrainingSample> TrainingBatches::samples(int64_t number, int64_t dataset_size) const {
  const auto number_of_slots = static_cast<int64_t>(slots.size());
  const Slot slot = slots[static_cast<size_t>(number % number_of_slots)];
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

std::vector<int64_t> evenly_spread(int64_t count, int64_t size) {
  count = std::min(count, size);
  std::vector<int64_t> numbers;
  numbers.reserve(static_cast<size_t>(count));
  // floor(i * size / count) in two parts, to avoid overflow of i * size.
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(i * (size / count) + i * (size % count) / count);
  return numbers;
}

int64_t EvalBatches::count() const {
  const int64_t batches = (static_cast<int64_t>(samples.size()) + batch_size - 1) / batch_size;
  return std::max<int64_t>(0, (batches - first_batch + stride - 1) / stride);
}

std::span<const int64_t> EvalBatches::batch(int64_t number) const {
  const auto begin = static_cast<size_t>((first_batch + number * stride) * batch_size);
  return std::span(samples).subspan(begin, std::min(static_cast<size_t>(batch_size), samples.size() - begin));
}

}  // namespace sdp
