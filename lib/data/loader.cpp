#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace sdp {

namespace {

void check(const LoaderOptions& options) {
  const BatchGeometry& geometry = options.geometry;
  const bool slots_fit = std::all_of(options.slots.begin(), options.slots.end(), [&](const SlotId& slot) {
    return slot.worker >= 0 && slot.worker < geometry.workers && slot.replica >= 0 &&
           slot.replica < geometry.replicas;
  });
  if (geometry.samples_per_step() < 1 || geometry.accumulate_steps < 1 || geometry.batch_size < 1 ||
      !slots_fit || options.first_step < 0 || options.last_step < options.first_step || options.threads < 1 ||
      options.prefetch_batches < 1)
    throw std::logic_error("BatchLoader: options out of range");
}

int64_t batches_per_step(const LoaderOptions& options) {
  return options.geometry.accumulate_steps * static_cast<int64_t>(options.slots.size());
}

}  // namespace

BatchLoader::BatchLoader(const Dataset& dataset, LoaderOptions options)
    : dataset_(dataset), options_(std::move(options)), sampler_(dataset.size(), options_.seed) {
  check(options_);
  total_ = (options_.last_step - options_.first_step) * batches_per_step(options_);
  ring_.resize(static_cast<size_t>(options_.prefetch_batches));
  for (int64_t thread = 0; thread < options_.threads; ++thread)
    threads_.emplace_back([this](const std::stop_token& stop) { prepare_batches(stop); });
}

Batch BatchLoader::next() {
  if (done()) throw std::logic_error("BatchLoader: no batch is left");
  std::unique_lock lock(mutex_);
  Place& place = ring_[static_cast<size_t>(taken_) % ring_.size()];

  const auto start = std::chrono::steady_clock::now();
  ready_.wait(lock, [&] { return place.ready(); });
  wait_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  if (place.error) std::rethrow_exception(place.error);
  Batch batch = std::move(*place.batch);
  place.batch.reset();
  ++taken_;
  room_.notify_one();
  return batch;
}

void BatchLoader::prepare_batches(const std::stop_token& stop) {
  for (;;) {
    int64_t number = 0;
    {
      std::unique_lock lock(mutex_);
      const auto has_room = [&] {
        return claimed_ == total_ || claimed_ < taken_ + options_.prefetch_batches;
      };
      if (!room_.wait(lock, stop, has_room) || claimed_ == total_) return;
      number = claimed_++;
    }
    Place result;
    try {
      result.batch = make_batch(number, stop);
    } catch (...) {
      result.error = std::current_exception();
    }
    if (!result.ready()) return;
    const std::lock_guard lock(mutex_);
    ring_[static_cast<size_t>(number) % ring_.size()] = std::move(result);
    ready_.notify_one();
  }
}

std::optional<Batch> BatchLoader::make_batch(int64_t number, const std::stop_token& stop) const {
  const auto slots = static_cast<int64_t>(options_.slots.size());
  const SlotId slot = options_.slots[static_cast<size_t>(number % slots)];
  const int64_t micro_batch = number / slots % options_.geometry.accumulate_steps;
  const int64_t step = options_.first_step + number / batches_per_step(options_);

  std::vector<TrainingSample> samples;
  for (int64_t i = 0; i < options_.geometry.batch_size; ++i) {
    const int64_t position = options_.geometry.position(step, slot.worker, slot.replica, micro_batch, i);
    samples.push_back({.position = position, .index = sampler_.index(position)});
  }
  Batch batch = dataset_.training_batch(samples, options_.augment, options_.seed, stop);
  if (stop.stop_requested()) return std::nullopt;
  return batch;
}

}  // namespace sdp
