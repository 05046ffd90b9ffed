#include "data/dataset.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/batches.h"
#include "data/image_array.h"

namespace sdp {

std::unique_ptr<Dataset> open_dataset(const DataSpec& spec, const ModelSpec& model, Split split,
                                      const OnProgress& on_progress) {
  if (spec.path.empty())
    throw UsageError(
        fmt::format("data.path is not set. Expected the folder that holds the data set {}.", spec.name()));
  const bool holds_out = spec.validation_share > 0;
  const Split from = holds_out ? Split::kTrain : split;
  std::unique_ptr<Dataset> dataset =
      spec.set.visit([&]<class Set>(const Set& set) -> std::unique_ptr<Dataset> {
        if constexpr (Set::kind == DataKind::kHeldImages) {
          ImageArray images = read_set(set, spec, from, throw_problem);
          images.normalization = spec.pixel_normalization().value();
          return std::make_unique<ArrayDataset>(std::move(images));
        } else {
          return open_set(set, spec, model, from, on_progress);
        }
      });
  dataset->check_fits(model, on_progress);
  if (!holds_out) return dataset;
  std::vector<int64_t> samples = samples_of_side(dataset->size(), spec.validation_share, split);
  return subset_of(std::move(dataset), std::move(samples));
}

namespace {

DataIdentity identity_of_subset(const Dataset& whole, const std::vector<int64_t>& samples) {
  const uint64_t chosen = XXH3_64bits(samples.data(), samples.size() * sizeof(int64_t));
  return {.samples = static_cast<int64_t>(samples.size()),
          .hash = fmt::format("{}-{:016x}", whole.identity().hash, chosen)};
}

/// Images that are read from files. Batches are made here, so that a damaged image is replaced by one of the
/// subset.
class ImageSubset final : public ImageDataset {
 public:
  ImageSubset(std::unique_ptr<ImageDataset> whole, std::vector<int64_t> samples)
      : ImageDataset(whole->on_error()), whole_(std::move(whole)), samples_(std::move(samples)) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  DataIdentity identity() const override { return identity_of_subset(*whole_, samples_); }
  std::string note() const override { return whole_->note(); }
  std::string sample_name(int64_t index) const override { return whole_->sample_name(at(index)); }
  ImageShape shape() const override { return whole_->shape(); }
  int64_t num_classes() const override { return whole_->num_classes(); }
  int64_t label(int64_t index) const override { return whole_->label(at(index)); }
  void read(int64_t index, std::span<uint8_t> chw) const override { whole_->read(at(index), chw); }
  void read_for_training(int64_t index, std::span<const Augmentation> steps, uint64_t seed, int64_t position,
                         std::span<uint8_t> chw) const override {
    whole_->read_for_training(at(index), steps, seed, position, chw);
  }
  const Normalization& normalization() const override { return whole_->normalization(); }

 private:
  int64_t at(int64_t index) const { return samples_.at(static_cast<size_t>(index)); }

  std::unique_ptr<ImageDataset> whole_;
  std::vector<int64_t> samples_;
};

class TokenSubset final : public Dataset {
 public:
  TokenSubset(std::unique_ptr<Dataset> whole, std::vector<int64_t> samples)
      : whole_(std::move(whole)), samples_(std::move(samples)) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  DataIdentity identity() const override { return identity_of_subset(*whole_, samples_); }
  std::string note() const override { return whole_->note(); }
  void check_fits(const ModelSpec& model, const OnProgress& on_progress) const override {
    whole_->check_fits(model, on_progress);
  }
  Batch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                       uint64_t seed, const std::stop_token& stop) const override {
    std::vector<TrainingSample> in_whole(samples.begin(), samples.end());
    for (TrainingSample& sample : in_whole)
      sample.index = samples_.at(static_cast<size_t>(sample.index));
    return renumbered(whole_->training_batch(in_whole, augmentation, seed, stop));
  }
  Batch eval_batch(std::span<const int64_t> samples) const override {
    std::vector<int64_t> in_whole;
    for (const int64_t sample : samples)
      in_whole.push_back(samples_.at(static_cast<size_t>(sample)));
    return renumbered(whole_->eval_batch(in_whole));
  }

 private:
  Batch renumbered(Batch batch) const {
    for (int64_t& sample : batch.samples)
      sample = std::lower_bound(samples_.begin(), samples_.end(), sample) - samples_.begin();
    return batch;
  }

  std::unique_ptr<Dataset> whole_;
  std::vector<int64_t> samples_;  ///< ascending
};

ImageArray subset_of_array(const ImageArray& whole, const std::vector<int64_t>& samples) {
  const auto numel = whole.shape.numel();
  ImageArray some{
      .shape = whole.shape, .num_classes = whole.num_classes, .normalization = whole.normalization};
  some.pixels.reserve(samples.size() * static_cast<size_t>(numel));
  for (const int64_t sample : samples) {
    const auto image = whole.pixels.begin() + sample * numel;
    some.pixels.insert(some.pixels.end(), image, image + numel);
    some.labels.push_back(whole.labels[static_cast<size_t>(sample)]);
  }
  return some;
}

}  // namespace

std::vector<int64_t> samples_of_side(int64_t size, double validation_share, Split side) {
  const auto count = std::max<int64_t>(1, std::llround(validation_share * static_cast<double>(size)));
  if (count >= size)
    throw UsageError(
        fmt::format("data.validation_share: {} holds out all {} training samples", validation_share, size));
  const std::vector<int64_t> held_out = evenly_spread(count, size);
  if (side == Split::kTest) return held_out;
  std::vector<int64_t> others;
  for (int64_t sample = 0; sample < size; ++sample)
    if (!std::binary_search(held_out.begin(), held_out.end(), sample)) others.push_back(sample);
  return others;
}

std::unique_ptr<Dataset> subset_of(std::unique_ptr<Dataset> whole, std::vector<int64_t> samples) {
  if (const auto* held = dynamic_cast<const ArrayDataset*>(whole.get()))
    return std::make_unique<ArrayDataset>(subset_of_array(held->array(), samples));
  if (dynamic_cast<const ImageDataset*>(whole.get())) {
    std::unique_ptr<ImageDataset> images(static_cast<ImageDataset*>(whole.release()));
    return std::make_unique<ImageSubset>(std::move(images), std::move(samples));
  }
  return std::make_unique<TokenSubset>(std::move(whole), std::move(samples));
}

}  // namespace sdp
