#pragma once

// Data sets of small images of one size, which are held in memory. image_array.h has their files.

#include "data/set_row.h"
#include "formats/image_shape.h"

namespace sdp {

/// How one of these sets differs from the others.
struct HeldImages {
  ImageShape shape;
  std::vector<Augmentation> usual_augmentation;
  Normalization normalization;
  int64_t official_samples;              ///< of the training split
  std::vector<std::string> class_names;  ///< by label, at most 256
  /// Names of the official archives and of what they contain, of which scripts/fetch_data makes the arrays.
  std::vector<std::string_view> official_files;
  bool as_shards = false;  ///< may also be tar shards of JPEG (image_array.h)
};

/// To train on examples/data instead of the set `name`.
MissingData missing_arrays(const HeldImages& set, std::string_view name, std::string command);

/// What registry.h requires. `Set` has its names and `static const HeldImages& images()`.
template <class Set>
struct HeldImagesRow {
  static constexpr DataKind kind = DataKind::kHeldImages;

  bool operator==(const HeldImagesRow&) const = default;
  template <class Visitor>
  static void fields(Visitor&) {}
  void resolve(const ModelSpec&) {}
  static std::vector<Augmentation> usual_augmentation() { return Set::images().usual_augmentation; }
  static const Normalization& normalization() { return Set::images().normalization; }
  static std::optional<int64_t> official_samples() { return Set::images().official_samples; }
  static std::vector<std::string> class_names(const DataSpec&) { return Set::images().class_names; }
  static int64_t eval_resize_of(int64_t size) { return size; }
  MissingData missing() const {
    return missing_arrays(Set::images(), Set::names[0], static_cast<const Set&>(*this).command());
  }

  /// Writes the files; the folder becomes its last word.
  static std::string command() { return "scripts/fetch_data " + std::string(Set::names[0]); }
  /// Of a split, in the order of their samples.
  static std::vector<std::string> files(Split split) {
    return {split == Split::kTrain ? "train.safetensors" : "val.safetensors"};
  }
};

}  // namespace sdp
