#include "data/device_loader.h"

#include <ATen/ATen.h>

#include <atomic>

#include "catch.h"
#include "data/copy_ahead.h"
#include "data/image_array.h"
#include "data/random.h"
#include "message_of.h"
#include "process/allocations.h"
#include "process/freed_memory.h"
#include "spec/error.h"
#include "test_device.h"

namespace sdp {
namespace {

/// Images of noise, 3 x 9 x 7, and labels in 0..4.
ArrayDataset noise_images(int64_t size) {
  CounterRandom random(1, RandomPurpose::kShuffle, 0);
  const auto noise = [&](int64_t values, uint64_t below) {
    std::vector<uint8_t> bytes(static_cast<size_t>(values));
    for (uint8_t& byte : bytes)
      byte = static_cast<uint8_t>(random.below(below));
    return bytes;
  };
  return ArrayDataset({.shape = {.channels = 3, .height = 9, .width = 7},
                       .num_classes = 5,
                       .normalization = {.mean = {0.5F, 0.4F, 0.3F}, .stddev = {0.2F, 0.25F, 0.3F}},
                       .pixels = noise(size * 3 * 9 * 7, 256),
                       .labels = noise(size, 5)});
}

TrainingBatches batches_with(ImageAugmentation augment) {
  return {.geometry = {.workers = 3, .replicas = 1, .accumulate_steps = 2, .batch_size = 6},
          .slots = {{.worker = 2, .replica = 0}, {.worker = 0, .replica = 0}},
          .first_step = 1,
          .last_step = 5,
          .seed = 11,
          .augment = std::move(augment)};
}

/// Bit-identical, on any devices.
void check_equal(const TensorBatch& batch, const TensorBatch& expected) {
  CHECK(batch.samples == expected.samples);
  CHECK(batch.input.scalar_type() == expected.input.scalar_type());
  CHECK(at::equal(batch.input.cpu(), expected.input.cpu()));
  CHECK(at::equal(batch.labels.cpu(), expected.labels.cpu()));
  REQUIRE(batch.mixed_labels.defined() == expected.mixed_labels.defined());
  if (batch.mixed_labels.defined()) CHECK(at::equal(batch.mixed_labels.cpu(), expected.mixed_labels.cpu()));
  CHECK(batch.mix == expected.mix);
}

TEST_CASE("images are kept on the device if possible or requested, not counted as tensors of a step") {
  const ArrayDataset images = noise_images(2);
  CHECK(is_kept_on_device(images, DataLocation::kDevice, at::kCPU));
  CHECK(is_kept_on_device(images, DataLocation::kAuto, at::kCUDA));
  CHECK_FALSE(is_kept_on_device(images, DataLocation::kAuto, at::kCPU));
  CHECK_FALSE(is_kept_on_device(images, DataLocation::kHost, at::kCUDA));

  count_allocations(test_device());  // of tensors, which those of a step are
  const int64_t before = allocated_now().total();
  const DeviceDataset resident(images, {.location = DataLocation::kDevice}, Precision::kFp32, test_device());
  REQUIRE(resident.is_resident());
  CHECK(allocated_now().total() == before);
}

TEST_CASE("images kept on the device match the loader's images to the bit") {
  poison_freed_memory();
  using enum Augmentation;
  const ArrayDataset dataset = noise_images(40);
  using Steps = ImageAugmentation;
  const std::vector<Steps> augmentations = {Steps{}, Steps{.steps = {kFlip}}, Steps{.steps = {kCrop, kFlip}},
                                            Steps{.steps = {kCrop}, .mixup_alpha = 0.8},
                                            Steps{.steps = {kCrop, kFlip}, .cutmix_alpha = 1}};
  for (const Precision precision : {Precision::kFp32, Precision::kFp64, Precision::kBf16})
    for (const ImageAugmentation& augmentation : augmentations) {
      const TrainingBatches batches = batches_with(augmentation);
      const EvalBatches evaluated{.samples = evenly_spread(30, 40), .batch_size = 7};
      const DeviceDataset resident(dataset, {.location = DataLocation::kDevice}, precision, test_device());
      const DeviceDataset loaded(dataset, {.location = DataLocation::kHost}, precision, at::kCPU);
      REQUIRE(resident.is_resident());
      REQUIRE_FALSE(loaded.is_resident());
      const auto check = [](DeviceLoader& loader, DeviceLoader& expected, int64_t count) {
        for (int64_t number = 0; number < count; ++number)
          check_equal(loader.next(), expected.next());
        CHECK_THROWS_AS(loader.next(), std::logic_error);
      };
      check(*resident.training(batches), *loaded.training(batches), batches.count());
      check(*resident.evaluation(evaluated), *loaded.evaluation(evaluated), evaluated.count());
    }
}

TEST_CASE("batches that a slow device receives match the loader's") {
  poison_freed_memory();
  const ArrayDataset dataset = noise_images(40);
  const TrainingBatches batches = batches_with({.steps = {Augmentation::kFlip}});
  const DeviceDataset source(dataset, {.location = DataLocation::kHost}, Precision::kFp32, test_device());
  const DeviceDataset loaded(dataset, {.location = DataLocation::kHost}, Precision::kFp32, at::kCPU);
  const auto loader = source.training(batches), expected = loaded.training(batches);
  at::Tensor work = at::ones({512, 512}, test_device());
  const int products = test_device().is_cpu() ? 0 : 20;  // a CPU computes before it takes the next batch
  std::vector<at::Tensor> taken;                         // computed from the batch while the device is behind
  for (int64_t number = 0; number < batches.count(); ++number) {
    for (int i = 0; i < products; ++i)
      work = work.matmul(work).div(work.sum());
    taken.push_back(loader->next().input.mul(2));
  }
  for (const at::Tensor& twice : taken)
    CHECK(at::equal(twice.cpu(), expected->next().input.mul(2)));
}

/// Of batches that count from 0, of which batch `bad` cannot be read.
CopyAheadLoader copies_of_counts(int64_t count, int64_t bad, std::atomic<int64_t>& made) {
  const auto make = [bad, &made](int64_t number, const std::stop_token&) {
    if (number == bad) throw DataError("batch " + std::to_string(number));
    ++made;
    return Batch{.samples = {number}, .tokens = {number, number + 1}};
  };
  return {std::make_unique<BatchLoader>(count, make, LoaderThreads{.threads = 2, .prefetch_batches = 3}),
          Precision::kFp32, test_device(), make_copy_stream(test_device())};
}

TEST_CASE("copying ahead keeps the order and passes an error on at its place, or has an end") {
  std::atomic<int64_t> made = 0;
  CopyAheadLoader loader = copies_of_counts(20, 13, made);
  for (int64_t number = 0; number < 13; ++number) {
    const TensorBatch batch = loader.next();
    CHECK(batch.samples == std::vector<int64_t>{number});
    CHECK(batch.input.item<int64_t>() == number);
    CHECK(batch.labels.item<int64_t>() == number + 1);
  }
  for (int again = 0; again < 2; ++again)
    CHECK(message_of<DataError>([&] { loader.next(); }) == "batch 13");
  CopyAheadLoader short_one = copies_of_counts(1, -1, made);
  short_one.next();
  CHECK_THROWS_AS(short_one.next(), std::logic_error);
}

TEST_CASE("copying ahead stays within its limit, and ends without being drained") {
  std::atomic<int64_t> made = 0;
  CopyAheadLoader loader = copies_of_counts(1000, -1, made);
  loader.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(made <= 1 + 2 + 3);  // taken, copied, read ahead
}

TEST_CASE("values that need no conversion are not copied") {
  Batch images{.samples = {0}, .image_shape = {1, 2, 2}, .images = {1, 2, 3, 4}, .labels = {3}};
  const float* pixels = images.images.data();
  const TensorBatch tensors = to_tensors(std::move(images), Precision::kFp32, at::kCPU);
  CHECK(tensors.input.data_ptr<float>() == pixels);
  CHECK(tensors.input.sizes() == at::IntArrayRef({1, 1, 2, 2}));
}

}  // namespace
}  // namespace sdp
