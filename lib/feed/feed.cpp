#include "feed/feed.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "data/sets/image_array.h"
#include "feed/copy_ahead.h"
#include "feed/resident_images.h"

namespace sdp {

namespace {

/// Batches from a loader's threads, on a CPU: nothing needs to be copied.
class LoaderFeed final : public Feed {
 public:
  LoaderFeed(std::unique_ptr<BatchLoader> loader, Precision precision)
      : loader_(std::move(loader)), precision_(precision) {}

  TensorBatch next() override { return to_tensors(loader_->next(), precision_, at::kCPU); }
  double wait_ms() const override { return loader_->wait_ms(); }

 private:
  std::unique_ptr<BatchLoader> loader_;
  Precision precision_;
};

/// Batches made on the device when they are requested.
class ResidentFeed final : public Feed {
 public:
  ResidentFeed(int64_t count, std::function<TensorBatch(int64_t number)> make)
      : count_(count), make_(std::move(make)) {}

  TensorBatch next() override {
    if (taken_ == count_) throw std::logic_error("Feed: no batch is left");
    return make_(taken_++);
  }
  double wait_ms() const override { return 0; }

 private:
  int64_t count_;
  std::function<TensorBatch(int64_t number)> make_;
  int64_t taken_ = 0;
};

}  // namespace

bool is_kept_on_device(const Dataset& dataset, DataLocation location, at::Device device) {
  const auto* images = dynamic_cast<const ArrayDataset*>(&dataset);
  if (!images || location == DataLocation::kHost) return false;
  const auto bytes = static_cast<int64_t>(images->array().pixels.size());
  return location == DataLocation::kDevice || (device.is_cuda() && bytes <= kMostResidentBytes);
}

FeedSource::FeedSource(const Dataset& dataset, const DataSpec& spec, Precision precision, at::Device device)
    : dataset_(dataset),
      threads_{.threads = spec.loader_threads, .prefetch_batches = spec.prefetch_batches},
      precision_(precision),
      device_(device),
      copy_stream_(make_copy_stream(device)) {
  if (is_kept_on_device(dataset, spec.location, device))
    resident_ = std::make_unique<ResidentImages>(dynamic_cast<const ArrayDataset&>(dataset).array(),
                                                 precision, device);
}

FeedSource::~FeedSource() = default;

std::unique_ptr<Feed> FeedSource::feed_of(std::unique_ptr<BatchLoader> loader) const {
  if (device_.is_cpu()) return std::make_unique<LoaderFeed>(std::move(loader), precision_);
  return std::make_unique<CopyAheadFeed>(std::move(loader), precision_, device_, copy_stream_);
}

std::unique_ptr<Feed> FeedSource::training(const TrainingBatches& batches) const {
  if (!resident_) return feed_of(std::make_unique<BatchLoader>(dataset_, batches, threads_));
  batches.check();
  return std::make_unique<ResidentFeed>(batches.count(), [this, batches](int64_t number) {
    return resident_->training_batch(batches.samples(number, dataset_.size()), batches.augment, batches.seed);
  });
}

std::unique_ptr<Feed> FeedSource::evaluation(const EvalBatches& batches) const {
  if (!resident_) return feed_of(std::make_unique<BatchLoader>(dataset_, batches, threads_));
  return std::make_unique<ResidentFeed>(batches.count(), [this, batches](int64_t number) {
    return resident_->eval_batch(batches.batch(number));
  });
}

}  // namespace sdp
