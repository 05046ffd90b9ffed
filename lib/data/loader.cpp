#include "data/loader.h"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace sdp {

namespace {

MakeBatch maker_of(const Dataset& dataset, const TrainingBatches& batches) {
  batches.check();
  return [&dataset, batches](int64_t number, const std::stop_token& stop) {
    return dataset.training_batch(batches.samples(number, dataset.size()), batches.augment, batches.seed,
                                  stop);
  };
}

MakeBatch maker_of(const Dataset& dataset, const EvalBatches& batches) {
  return [&dataset, batches](int64_t number, const std::stop_token&) {
    return dataset.eval_batch(batches.batch(number));
  };
}

}  // namespace

BatchLoader::BatchLoader(int64_t count, MakeBatch make, LoaderThreads threads)
    : count_(count), make_(std::move(make)), options_(threads) {
  if (count < 0 || threads.threads < 1 || threads.prefetch_batches < 1)
    throw std::logic_error("BatchLoader: numbers out of range");
  ring_.resize(static_cast<size_t>(threads.prefetch_batches));
  for (int64_t thread = 0; thread < threads.threads; ++thread)
    threads_.emplace_back([this](const std::stop_token& stop) { prepare_batches(stop); });
}

BatchLoader::BatchLoader(const Dataset& dataset, const TrainingBatches& batches, LoaderThreads threads)
    : BatchLoader(batches.count(), maker_of(dataset, batches), threads) {}

BatchLoader::BatchLoader(const Dataset& dataset, const EvalBatches& batches, LoaderThreads threads)
    : BatchLoader(batches.count(), maker_of(dataset, batches), threads) {}

BatchLoader::~BatchLoader() {
  for (std::jthread& thread : threads_)
    thread.request_stop();  // request all stops before joining any thread
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
        return claimed_ == count_ || claimed_ < taken_ + options_.prefetch_batches;
      };
      if (!room_.wait(lock, stop, has_room) || claimed_ == count_) return;
      number = claimed_++;
    }
    Place result;
    try {
      result.batch = make_(number, stop);
    } catch (...) {
      result.error = std::current_exception();
    }
    if (stop.stop_requested()) return;
    const std::lock_guard lock(mutex_);
    ring_[static_cast<size_t>(number) % ring_.size()] = std::move(result);
    ready_.notify_one();
  }
}

}  // namespace sdp
