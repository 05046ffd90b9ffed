#include "data/device_loader.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "data/copy_ahead.h"
#include "data/image_array.h"
#include "data/resident_images.h"
#include "layers/tensors.h"

namespace sdp {
namespace {

/// The values on the device, in the given type.
template <class T, class Allocator>
at::Tensor moved(std::vector<T, Allocator> values, at::IntArrayRef shape, at::ScalarType type,
                 at::Device device) {
  const auto owner = std::make_shared<std::vector<T, Allocator>>(std::move(values));
  const at::Tensor host = at::from_blob(
      owner->data(), shape, [owner](void*) {}, c10::CppTypeToScalarType<T>::value);
  if (device.is_cuda()) return host.pin_memory().to(device, /*non_blocking=*/true).to(type);
  return host.to(type);
}

/// Batches from a loader's threads, on a CPU: nothing needs to be copied.
class CpuLoader final : public DeviceLoader {
 public:
  CpuLoader(std::unique_ptr<BatchLoader> loader, Precision precision)
      : loader_(std::move(loader)), precision_(precision) {}

  TensorBatch next() override { return to_tensors(loader_->next(), precision_, at::kCPU); }
  double wait_ms() const override { return loader_->wait_ms(); }

 private:
  std::unique_ptr<BatchLoader> loader_;
  Precision precision_;
};

/// Batches made on the device when they are requested.
class ResidentLoader final : public DeviceLoader {
 public:
  ResidentLoader(int64_t count, std::function<TensorBatch(int64_t number)> make)
      : count_(count), make_(std::move(make)) {}

  TensorBatch next() override {
    if (taken_ == count_) throw std::logic_error("DeviceLoader: no batch is left");
    return make_(taken_++);
  }
  double wait_ms() const override { return 0; }

 private:
  int64_t count_;
  std::function<TensorBatch(int64_t number)> make_;
  int64_t taken_ = 0;
};

}  // namespace

TensorBatch to_tensors(Batch batch, Precision precision, at::Device device) {
  const auto size = static_cast<int64_t>(batch.samples.size());
  TensorBatch tensors{
      .mix = batch.mix, .samples = std::move(batch.samples), .skipped = std::move(batch.skipped)};
  if (!batch.tokens.empty()) {
    const int64_t row = static_cast<int64_t>(batch.tokens.size()) / size;
    const at::Tensor tokens = moved(std::move(batch.tokens), {size, row}, at::kLong, device);
    tensors.input = tokens.slice(1, 0, row - 1).contiguous();
    tensors.labels = tokens.slice(1, 1, row).contiguous();
    return tensors;
  }
  const auto [channels, height, width] = batch.image_shape;
  tensors.input = moved(std::move(batch.images), {size, channels, height, width},
                        scalar_type(compute_type(precision)), device);
  tensors.labels = moved(std::move(batch.labels), {size}, at::kLong, device);
  if (!batch.mixed_labels.empty())
    tensors.mixed_labels = moved(std::move(batch.mixed_labels), {size}, at::kLong, device);
  return tensors;
}

bool is_kept_on_device(const Dataset& dataset, DataLocation location, at::Device device) {
  const auto* images = dynamic_cast<const ArrayDataset*>(&dataset);
  if (!images || location == DataLocation::kHost) return false;
  const auto bytes = static_cast<int64_t>(images->array().pixels.size());
  return location == DataLocation::kDevice || (device.is_cuda() && bytes <= kMostResidentBytes);
}

DeviceDataset::DeviceDataset(const Dataset& dataset, const DataSpec& spec, Precision precision,
                             at::Device device)
    : dataset_(dataset),
      threads_{.threads = spec.loader_threads, .prefetch_batches = spec.prefetch_batches},
      precision_(precision),
      device_(device),
      copy_stream_(make_copy_stream(device)) {
  if (is_kept_on_device(dataset, spec.location, device))
    resident_ = std::make_unique<ResidentImages>(dynamic_cast<const ArrayDataset&>(dataset).array(),
                                                 precision, device);
}

DeviceDataset::~DeviceDataset() = default;

std::unique_ptr<DeviceLoader> DeviceDataset::device_loader(std::unique_ptr<BatchLoader> loader) const {
  if (device_.is_cpu()) return std::make_unique<CpuLoader>(std::move(loader), precision_);
  return std::make_unique<CopyAheadLoader>(std::move(loader), precision_, device_, copy_stream_);
}

std::unique_ptr<DeviceLoader> DeviceDataset::training(const TrainingBatches& batches) const {
  if (!resident_) return device_loader(std::make_unique<BatchLoader>(dataset_, batches, threads_));
  batches.check();
  return std::make_unique<ResidentLoader>(batches.count(), [this, batches](int64_t number) {
    return resident_->training_batch(batches.samples(number, dataset_.size()), batches.augment, batches.seed);
  });
}

std::unique_ptr<DeviceLoader> DeviceDataset::evaluation(const EvalBatches& batches) const {
  if (!resident_) return device_loader(std::make_unique<BatchLoader>(dataset_, batches, threads_));
  return std::make_unique<ResidentLoader>(batches.count(), [this, batches](int64_t number) {
    return resident_->eval_batch(batches.batch(number));
  });
}

}  // namespace sdp
