#pragma once

// The section `data` of a spec.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/registry.h"

namespace sdp {

enum class DataLocation { kAuto, kHost, kDevice };
SDP_ENUM_NAMES(DataLocation, {DataLocation::kAuto, "auto"}, {DataLocation::kHost, "host"},
               {DataLocation::kDevice, "device"})

/// Either is unset for the data set's own values.
struct NormalizationSpec {
  static constexpr Treatment treatment{OnResume::kFixed, InReport::kCompared};

  std::optional<std::vector<double>> mean = {};
  std::optional<std::vector<double>> stddev = {};

  bool operator==(const NormalizationSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("mean", &NormalizationSpec::mean, "mean of each channel; unset: the data set's", in_range(0, 1));
    field("std", &NormalizationSpec::stddev, "standard deviation of each channel; unset: the data set's",
          more_than_and_at_most(0, 1));
  }
};

/// Keys that are unset here get the data set's default; a loaded spec has all keys set except the file names.
struct DataSpec {
  DataSetKind set = {};
  std::string path = {};
  std::optional<std::vector<Augmentation>> augment = {};
  double validation_share = 0;
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
  int64_t loader_threads = 1;
  int64_t prefetch_batches = 4;
  DataLocation location = DataLocation::kAuto;
  NormalizationSpec normalization = {};

  bool operator==(const DataSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &DataSpec::set, "data set", OnResume::kFixed, InReport::kNotCompared);
    field("path", &DataSpec::path, "folder of the data set (docs/data.md)", OnResume::kFree,
          InReport::kNotCompared, kRequired);
    field(
        "validation_share", &DataSpec::validation_share,
        "share of the training samples that is held out, evenly spread, and takes the place of the test set, "
        "which is then not read; 0: none",
        OnResume::kFixed, InReport::kCompared, at_least_and_below(0, 1));
    field("augment", &DataSpec::augment,
          "training augmentations of images: crop (padding of 4 zero pixels, random position), resized_crop "
          "(random area and aspect ratio), flip (horizontal); unset: the data set's usual ones",
          OnResume::kRestOfRun, InReport::kCompared,
          advise_when<DataSpec>([](const DataSpec& s) { return s.is_of_tokens(); },
                                "has no effect: only images are augmented"));
    field("mixup_alpha", &DataSpec::mixup_alpha,
          "mixup (Zhang et al. 2018): images of a batch are mixed with a share drawn from Beta(alpha, "
          "alpha); 0: "
          "none",
          OnResume::kRestOfRun, InReport::kCompared, at_least(0));
    field("cutmix_alpha", &DataSpec::cutmix_alpha,
          "cutmix (Yun et al. 2019): a box of an image is replaced by another image's; if mixup is on too, "
          "each is used for half of the batches; "
          "0: none",
          OnResume::kRestOfRun, InReport::kCompared, at_least(0));
    field("loader_threads", &DataSpec::loader_threads, "threads per process that prepare batches",
          OnResume::kFree, InReport::kCompared, in_range(1, 1024));
    field("prefetch_batches", &DataSpec::prefetch_batches, "batches prepared ahead", OnResume::kFree,
          InReport::kCompared, in_range(1, 1 << 16), "batches");
    field("location", &DataSpec::location,
          "where images are kept and augmented: host, or all of them on the device, without reading them "
          "during training; auto: device on CUDA, up to 1 GiB of pixels",
          OnResume::kFree, InReport::kCompared);
    field("normalization", &DataSpec::normalization,
          "mean and deviation of pixel values in 0..1; `sdp-train data check` measures them");
  }

  std::string_view name() const { return set.name(); }
  DataKind kind() const {
    return set.visit([]<class Set>(const Set&) { return Set::kind; });
  }
  bool is_of_tokens() const { return kind() == DataKind::kTokens; }
  /// Tokens per sample; 1 for images.
  int64_t sequence_length() const {
    return set.visit([]<class Set>(const Set& own) -> int64_t {
      if constexpr (Set::kind == DataKind::kTokens) {
        return own.sequence_length;
      } else {
        return 1;
      }
    });
  }
  std::optional<int64_t> official_samples() const {
    return set.visit([](const auto& own) { return own.official_samples(); });
  }
  /// By label; empty if they are unknown, and for tokens.
  std::vector<std::string> class_names() const {
    return set.visit([&]<class Set>(const Set& own) -> std::vector<std::string> {
      if constexpr (Set::kind == DataKind::kTokens) {
        return {};
      } else {
        return own.class_names(*this);
      }
    });
  }
  /// Of a resolved spec: shorter side of an image before the center crop of `size` pixels in evaluation.
  int64_t eval_resize_of(int64_t size) const {
    return set.visit([&]<class Set>(const Set& own) -> int64_t {
      if constexpr (Set::kind == DataKind::kTokens) {
        throw std::logic_error("tokens are not resized");
      } else {
        return own.eval_resize_of(size);
      }
    });
  }
  /// The data set's own values where `normalization` is unset; none for tokens.
  std::optional<Normalization> pixel_normalization() const {
    return set.visit([&]<class Set>(const Set&) -> std::optional<Normalization> {
      if constexpr (Set::kind == DataKind::kTokens) {
        return std::nullopt;
      } else {
        return Normalization{.mean = normalization.mean.value_or(Set::normalization().mean),
                             .stddev = normalization.stddev.value_or(Set::normalization().stddev)};
      }
    });
  }
};

}  // namespace sdp
