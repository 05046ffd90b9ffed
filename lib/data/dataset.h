#pragma once

// Data sets, addressed by the index of a sample, and the batches made of them. The trainer knows `Dataset`
// alone; what a sample is, only the model and the two kinds below.
//
// Letters of shapes: B samples of a batch, C channels, H height, W width, T tokens of a sample.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "data/buffer.h"
#include "data/data_spec.h"
#include "io/on_progress.h"
#include "model/model_spec.h"
#include "spec/error.h"

namespace sdp {

struct ImageShape {
  int64_t channels;
  int64_t height;
  int64_t width;

  int64_t numel() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Images or tokens: the vectors of the other kind are empty.
struct Batch {
  std::vector<int64_t> samples = {};  ///< [B], indices in the data set

  ImageShape image_shape = {};
  Buffer<float> images = {};         ///< [B, C, H, W], normalised
  std::vector<int64_t> labels = {};  ///< [B]
  /// [B], empty where nothing was mixed (mixing.h): sample b has labels[b] to the share `mix` and
  /// mixed_labels[b] to the share 1 - mix.
  std::vector<int64_t> mixed_labels = {};
  double mix = 1;

  Buffer<int64_t> tokens = {};  ///< [B, T + 1]: inputs are the first T of a row, targets the last T

  std::vector<std::string> skipped = {};  ///< what is wrong with each image that was passed over

  bool operator==(const Batch&) const = default;
};

/// What training does to images; tokens are taken as they are.
struct ImageAugmentation {
  std::vector<Augmentation> steps = {};
  double mixup_alpha = 0;   ///< see mixing.h; 0: off
  double cutmix_alpha = 0;  ///< the same
};

/// A place of the training order (sampler.h) and the sample there.
struct TrainingSample {
  int64_t position;
  int64_t index;
};

/// What tells a data set from another, the same for copies on other machines.
struct DataIdentity {
  int64_t samples = 0;
  std::string hash = {};  ///< of the images in memory, or of the names and sizes of files

  bool operator==(const DataIdentity&) const = default;
};

/// An image that is there but does not decode, which data.on_error lets a run skip.
class DamagedImageError : public DataError {
 public:
  using DataError::DataError;
};

/// All methods are const and may be called by several threads at once. An index outside 0..size()-1 throws
/// std::logic_error.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;

  virtual DataIdentity identity() const = 0;

  /// What a user should know of how it was opened; empty where there is nothing.
  virtual std::string note() const { return {}; }

  /// Throws UsageError that names the key where the model's sizes are not the data set's.
  virtual void check_fits(const ModelSpec& model, const OnProgress& on_progress = ignore_progress) const = 0;

  /// A batch for training, a function of the samples and the seed alone. `stop` is looked at between samples;
  /// a batch that was stopped is of no use.
  virtual Batch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                               uint64_t seed, const std::stop_token& stop = {}) const = 0;

  /// The samples as they are.
  virtual Batch eval_batch(std::span<const int64_t> samples) const = 0;
};

/// Labelled images in the data set's official file order. A span of another size than shape().numel() throws
/// std::logic_error, an image that cannot be read DataError with its name, a damaged one DamagedImageError.
class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(OnError on_error = OnError::kError) : on_error_(on_error) {}

  /// Of every image as the network gets it.
  virtual ImageShape shape() const = 0;
  virtual int64_t num_classes() const = 0;
  virtual int64_t label(int64_t index) const = 0;
  /// Fills `chw` with the pixels of one image as evaluation takes them, [C, H, W], 0..255.
  virtual void read(int64_t index, std::span<uint8_t> chw) const = 0;
  /// The same as training takes them, before augment.h crops and flips: where images have many sizes and
  /// `steps` has resized_crop, a random area that is a function of (seed, position).
  virtual void read_for_training(int64_t index, std::span<const Augmentation> steps, uint64_t seed,
                                 int64_t position, std::span<uint8_t> chw) const;
  virtual const Normalization& normalization() const = 0;

  /// num_classes and image_size.
  void check_fits(const ModelSpec& model, const OnProgress& on_progress = ignore_progress) const final;
  /// Crops and flips (augment.h), then mixes (mixing.h). With on_error: skip a damaged image is replaced by
  /// the next that is whole, up to kMostSkipped of them.
  Batch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                       uint64_t seed, const std::stop_token& stop = {}) const final;
  /// Normalised only. With on_error: skip a damaged image is left out, as far as they are no more than
  /// kMostSkipped in a batch.
  Batch eval_batch(std::span<const int64_t> samples) const final;

  /// So many damaged images in a row are no accident any more.
  static constexpr size_t kMostSkipped = 100;

 private:
  bool reads(std::vector<std::string>& skipped, const std::function<void()>& read) const;

  OnError on_error_;
};

/// Throws DataError with the message.
void throw_problem(const std::string& message);

/// Opens and checks the data set for a model. Throws UsageError when data.path is empty or the model's sizes
/// are not the data set's, and DataError that names the file, the member and the offset when something is
/// missing, damaged or ambiguous. Progress is told of what takes long: listing ImageNet's folders or shards,
/// and looking through tokens.
std::unique_ptr<Dataset> open_dataset(const DataSpec& spec, const ModelSpec& model, Split split,
                                      const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
