#pragma once

// Data sets, addressed by sample index, and the batches made from them. The trainer uses only `Dataset`; only
// the model and the two kinds below know what a sample is.
//
// Shape symbols: B batch size, C channels, H height, W width, T tokens per sample.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "data/data_identity.h"
#include "data/data_spec.h"
#include "formats/buffer.h"
#include "formats/image_shape.h"
#include "formats/on_problem.h"
#include "io/on_progress.h"
#include "model/model_spec.h"
#include "spec/error.h"

namespace sdp {

/// Images or tokens; the vectors of the other kind are empty.
struct Batch {
  std::vector<int64_t> samples = {};  ///< [B], indices in the data set

  ImageShape image_shape = {};
  Buffer<float> images = {};         ///< [B, C, H, W], normalized
  std::vector<int64_t> labels = {};  ///< [B]
  /// [B], empty if nothing was mixed (augment.h): sample b has the label labels[b] with weight `mix` and
  /// mixed_labels[b] with weight 1 - mix.
  std::vector<int64_t> mixed_labels = {};
  double mix = 1;

  Buffer<int64_t> tokens = {};  ///< [B, T + 1]: inputs are the first T of a row, targets the last T

  std::vector<std::string> skipped = {};  ///< the fault of each image that was skipped

  bool operator==(const Batch&) const = default;
};

/// Augmentation of training images; tokens are not changed.
struct ImageAugmentation {
  std::vector<Augmentation> steps = {};
  double mixup_alpha = 0;   ///< see augment.h; 0: off
  double cutmix_alpha = 0;  ///< see augment.h; 0: off
};

/// A position in the training order (sampler.h) and the sample there.
struct TrainingSample {
  int64_t position;
  int64_t index;
};

/// An image that exists but does not decode; data.on_error lets a run skip it.
class DamagedImageError : public DataError {
 public:
  using DataError::DataError;
};

/// All methods are const and thread-safe. An index outside 0..size()-1 throws std::logic_error.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;

  virtual DataIdentity identity() const = 0;

  /// A note for the user about how it was opened; empty if there is none.
  virtual std::string note() const { return {}; }

  /// The path of a sample's file, or its shard and place in it; empty for data held in memory and for tokens.
  virtual std::string sample_name(int64_t /*index*/) const { return {}; }

  /// Throws UsageError naming the key if the model's sizes do not match the data set's.
  virtual void check_fits(const ModelSpec& model, const OnProgress& on_progress = ignore_progress) const = 0;

  /// A batch for training, a function of the samples and the seed only. `stop` is checked between samples; a
  /// stopped batch must not be used.
  virtual Batch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                               uint64_t seed, const std::stop_token& stop = {}) const = 0;

  /// The samples without augmentation.
  virtual Batch eval_batch(std::span<const int64_t> samples) const = 0;
};

/// Labelled images in the data set's official file order. Throws std::logic_error for a span whose size is
/// not shape().numel(), DataError with the name of an image that cannot be read, and DamagedImageError for a
/// damaged one.
class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(OnError on_error = OnError::kError) : on_error_(on_error) {}

  OnError on_error() const { return on_error_; }

  /// Shape of every image as the network's input.
  virtual ImageShape shape() const = 0;
  virtual int64_t num_classes() const = 0;
  virtual int64_t label(int64_t index) const = 0;
  /// Fills `chw` with the pixels of one image for evaluation, [C, H, W], 0..255.
  virtual void read(int64_t index, std::span<uint8_t> chw) const = 0;
  /// The same for training, before augment.h crops and flips. If images have different sizes and `steps` has
  /// resized_crop, this is a random area that depends on (seed, position).
  virtual void read_for_training(int64_t index, std::span<const Augmentation> steps, uint64_t seed,
                                 int64_t position, std::span<uint8_t> chw) const;
  virtual const Normalization& normalization() const = 0;

  /// Checks num_classes, image_size and image_channels.
  void check_fits(const ModelSpec& model, const OnProgress& on_progress = ignore_progress) const final;
  /// Crops and flips (augment.h), then mixes (augment.h). With on_error: skip, a damaged image is replaced by
  /// the next intact one, skipping up to kMostSkipped.
  Batch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                       uint64_t seed, const std::stop_token& stop = {}) const final;
  /// Only normalized. With on_error: skip, damaged images are left out, up to kMostSkipped per batch.
  Batch eval_batch(std::span<const int64_t> samples) const final;

  /// More damaged images than this are unlikely to be an accident.
  static constexpr size_t kMostSkipped = 100;

 private:
  bool reads(std::vector<std::string>& skipped, const std::function<void()>& read) const;

  OnError on_error_;
};

/// Opens and checks the data set for a model. Throws UsageError if data.path is empty or the model's sizes do
/// not match the data set's, and DataError with file, member and offset if something is missing, damaged or
/// ambiguous. With data.validation_share, both splits are parts of the training set. Reports the progress of
/// slow work: listing ImageNet's folders or shards, and scanning tokens.
std::unique_ptr<Dataset> open_dataset(const DataSpec& spec, const ModelSpec& model, Split split,
                                      const OnProgress& on_progress = ignore_progress);

// data.validation_share: the samples of a training set that are held out take the place of a test set.

/// The samples of one side, ascending: for Split::kTest a share of all samples, at least one, evenly spread
/// over the set, so that sets that are sorted by class lose the same share of each; for Split::kTrain the
/// others. Throws UsageError if a side has no sample.
std::vector<int64_t> samples_of_side(int64_t size, double validation_share, Split side);

/// These samples of a data set as a data set of its own.
std::unique_ptr<Dataset> subset_of(std::unique_ptr<Dataset> whole, std::vector<int64_t> samples);

}  // namespace sdp
