#pragma once

// Street View House Numbers (Netzer et al. 2011, http://ufldl.stanford.edu/housenumbers): 10 classes, the
// digits, as 32 x 32 RGB. Read from the official files of cropped digits (the site's format 2):
// train_32x32.mat, test_32x32.mat and extra_32x32.mat, MAT-files with X, uint8 [32, 32, 3, N], and y, uint8
// [N, 1], in which 10 is the digit 0.

#include <filesystem>

#include "data/sets/set_row.h"

namespace sdp {

struct SvhnSpec {
  static constexpr auto names = std::to_array<std::string_view>({"svhn"});
  static constexpr DataKind kind = DataKind::kHeldImages;

  bool svhn_extra = false;

  bool operator==(const SvhnSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("svhn_extra", &SvhnSpec::svhn_extra, "train on the set `extra` too", OnResume::kFixed,
          InReport::kNotCompared);
  }

  void resolve(const ModelSpec&) {}
  static std::vector<Augmentation> usual_augmentation() { return {Augmentation::kCrop}; }
  static int64_t eval_resize_of(int64_t size) { return size; }
  static const Normalization& normalization();
  std::optional<int64_t> official_samples() const { return svhn_extra ? 604'388 : 73'257; }
  std::vector<std::string> class_names(const DataSpec& data) const;
  MissingData missing() const;
};

ImageArray read_set(const SvhnSpec& spec, const DataSpec& data, Split split, const OnProblem& on_problem);

/// Reads one split; `with_extra` appends the images of `extra` to those of `train`.
///
/// Every problem is passed to `on_problem`. If that returns, the result has the images that could be read:
/// those before damaged data, without those with an invalid label.
ImageArray read_svhn(const std::filesystem::path& folder, Split split, bool with_extra,
                     const OnProblem& on_problem);

}  // namespace sdp
