#pragma once

// ImageNet-1k (Russakovsky et al. 2015) and data sets with the same layout: images of different sizes,
// which are decoded, cropped and resized (crops.h) when they are read.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "data/check.h"
#include "data/dataset.h"
#include "data/image_files.h"

namespace sdp {

class ImageNet final : public ImageDataset {
 public:
  /// `set`: resolved. Only training uses its scaled_decoding: evaluation results must not depend on it.
  ImageNet(std::unique_ptr<ImageFiles> files, const ImageNetSpec& set, int64_t image_size,
           Normalization normalization, std::string index_note);

  int64_t size() const override { return files_->index().size(); }
  /// Identity from the names and labels of the images.
  DataIdentity identity() const override;
  ImageShape shape() const override { return {.channels = 3, .height = image_size_, .width = image_size_}; }
  int64_t num_classes() const override { return files_->num_classes(); }
  std::string sample_name(int64_t index) const override { return files_->place(checked(index)); }
  int64_t label(int64_t index) const override { return files_->index().label(checked(index)); }
  void read(int64_t index, std::span<uint8_t> chw) const override;
  void read_for_training(int64_t index, std::span<const Augmentation> steps, uint64_t seed, int64_t position,
                         std::span<uint8_t> chw) const override;
  const Normalization& normalization() const override { return normalization_; }

  /// What `data check` finds in an image.
  struct Finding {
    ImageShape shape;  ///< of the file
    PixelMeans means;
  };
  /// Decodes an image completely. std::nullopt after reporting a problem.
  std::optional<Finding> check_image(int64_t index, const OnProblem& on_problem) const;

  /// Why the list of images could not be saved, and which folder is not read.
  std::string note() const override { return index_note_; }

 private:
  int64_t checked(int64_t index) const;
  void check_span(std::span<const uint8_t> chw) const;

  std::unique_ptr<ImageFiles> files_;
  ImageNetSpec set_;
  int64_t image_size_;
  Normalization normalization_;
  std::string index_note_;
};

/// Opens a split of the data set in data.path:
///
/// - folders: train/CLASS/*.JPEG and val/CLASS/*.JPEG and so on, see open_class_folders().
/// - uncompressed tar shards in WebDataset's naming, see tar_shard.h: the files that data.train_files and
///   data.test_files match, by default *train*.tar, and *val*.tar and *test*.tar, see split_files.h.
///
/// The list of images is saved in data.index_dir and rebuilt if folders or shards have changed, with progress
/// reports. Problems of single classes, shards and samples are passed to `on_problem`. Throws DataError and
/// UsageError if nothing can be read at all; see open_dataset().
std::unique_ptr<ImageNet> open_imagenet(const DataSpec& spec, const ModelSpec& model, Split split,
                                        const OnProblem& on_problem = throw_problem,
                                        const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
