#pragma once

// ImageNet-1k (Russakovsky et al. 2015) and data sets with the same layout: the section `data`. See
// imagenet.h.

#include "data/set_row.h"

namespace sdp {

struct ImageNetSpec {
  static constexpr auto names = std::to_array<std::string_view>({"imagenet"});
  static constexpr DataKind kind = DataKind::kStreamedImages;

  std::optional<std::string> train_files = {};
  std::optional<std::string> test_files = {};
  std::optional<std::string> index_dir = {};
  std::optional<int64_t> eval_resize = {};
  bool scaled_decoding = true;
  int64_t max_image_pixels = 50'000'000;
  OnError on_error = OnError::kError;

  bool operator==(const ImageNetSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("train_files", &ImageNetSpec::train_files,
          "names of the training shards in `path`, with * and ?; unset: *train*.tar", OnResume::kFixed,
          InReport::kNotCompared);
    field("test_files", &ImageNetSpec::test_files,
          "names of the shards for evaluation; unset: *val*.tar and *test*.tar", OnResume::kRestOfRun,
          InReport::kCompared);
    field("index_dir", &ImageNetSpec::index_dir, "folder for the saved list of files; unset: `path`",
          OnResume::kFree, InReport::kNotCompared);
    field("eval_resize", &ImageNetSpec::eval_resize,
          "shorter side before the center crop in evaluation; unset: 8/7 of model.image_size",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 2 * kMostImageSize), "pixels");
    field("scaled_decoding", &ImageNetSpec::scaled_decoding,
          "decode JPEGs at a fraction of their size if the crop is larger than needed", OnResume::kRestOfRun,
          InReport::kCompared);
    field("max_image_pixels", &ImageNetSpec::max_image_pixels,
          "a larger image counts as damaged and is not decoded; decoding a progressive JPEG takes up "
          "to 6 bytes per pixel in each loader thread",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 1 << 28), "pixels");
    field("on_error", &ImageNetSpec::on_error,
          "a damaged image is an error, or it is skipped and counted; in training another image replaces it",
          OnResume::kRestOfRun, InReport::kCompared);
  }

  /// eval_resize: torchvision's 256 for 224.
  void resolve(const ModelSpec& model);
  static std::vector<Augmentation> usual_augmentation() {
    return {Augmentation::kResizedCrop, Augmentation::kFlip};
  }
  int64_t eval_resize_of(int64_t) const { return eval_resize.value(); }
  static const Normalization& normalization();  ///< torchvision's
  std::optional<int64_t> official_samples() const {
    return train_files ? std::nullopt : std::optional<int64_t>(1'281'167);
  }
  std::vector<std::string> class_names(const DataSpec& data) const;
  MissingData missing() const;
};

std::unique_ptr<Dataset> open_set(const ImageNetSpec& spec, const DataSpec& data, const ModelSpec& model,
                                  Split split, const OnProgress& on_progress);
void check_set(const ImageNetSpec& spec, const DataSpec& data, const ModelSpec& model, int64_t threads,
               SplitReport& report, const OnProgress& on_progress);

}  // namespace sdp
