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

ImageBatch empty_batch(int64_t size, const ImageShape& shape) {
  return {.images = std::vector<float>(static_cast<size_t>(size * shape.numel())),
          .labels = std::vector<int64_t>(static_cast<size_t>(size)),
          .samples = std::vector<int64_t>(static_cast<size_t>(size))};
}

}  // namespace

BatchLoader::BatchLoader(const ImageDataset& dataset, LoaderOptions options)
    : dataset_(dataset),
      options_(std::move(options)),
      sampler_(dataset.size(), options_.seed),
      transform_(dataset.shape(), dataset.normalization()) {
  check(options_);
  total_ = (options_.last_step - options_.first_step) * batches_per_step(options_);
  ring_.resize(static_cast<size_t>(options_.prefetch_batches));
  for (int64_t thread = 0; thread < options_.threads; ++thread)
    threads_.emplace_back([this](const std::stop_token& stop) { prepare_batches(stop); });
}

ImageBatch BatchLoader::next() {
  if (done()) throw std::logic_error("BatchLoader: no batch is left");
  std::unique_lock lock(mutex_);
  Place& place = ring_[static_cast<size_t>(taken_) % ring_.size()];

  const auto start = std::chrono::steady_clock::now();
  ready_.wait(lock, [&] { return place.ready(); });
  wait_ms_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  if (place.error) std::rethrow_exception(place.error);
  ImageBatch batch = std::move(*place.batch);
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

std::optional<ImageBatch> BatchLoader::make_batch(int64_t number, const std::stop_token& stop) const {
  const auto slots = static_cast<int64_t>(options_.slots.size());
  const SlotId slot = options_.slots[static_cast<size_t>(number % slots)];
  const int64_t micro_batch = number / slots % options_.geometry.accumulate_steps;
  const int64_t step = options_.first_step + number / batches_per_step(options_);

  ImageBatch batch = empty_batch(options_.geometry.batch_size, dataset_.shape());
  const auto numel = static_cast<size_t>(dataset_.shape().numel());
  std::vector<uint8_t> pixels(numel);
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    if (stop.stop_requested()) return std::nullopt;
    const int64_t position =
        options_.geometry.position(step, slot.worker, slot.replica, micro_batch, static_cast<int64_t>(i));
    batch.samples[i] = sampler_.index(position);
    batch.labels[i] = dataset_.label(batch.samples[i]);
    dataset_.read(batch.samples[i], pixels);
    transform_.augment(pixels, options_.augment, options_.seed, position,
                       std::span(batch.images).subspan(i * numel, numel));
  }
  return batch;
}

ImageBatch eval_batch(const ImageDataset& dataset, int64_t begin, int64_t end) {
  if (begin < 0 || end < begin || end > dataset.size())
    throw std::logic_error("eval_batch: images outside the data set");
  const ImageTransform transform(dataset.shape(), dataset.normalization());
  ImageBatch batch = empty_batch(end - begin, dataset.shape());
  const auto numel = static_cast<size_t>(dataset.shape().numel());
  std::vector<uint8_t> pixels(numel);
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const int64_t index = begin + static_cast<int64_t>(i);
    batch.samples[i] = index;
    batch.labels[i] = dataset.label(index);
    dataset.read(index, pixels);
    transform.normalize(pixels, std::span(batch.images).subspan(i * numel, numel));
  }
  return batch;
}

}  // namespace sdp
