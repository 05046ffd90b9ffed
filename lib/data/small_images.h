#pragma once

// CIFAR-10 and CIFAR-100 (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html; of CIFAR-100 the fine
// labels), the cropped digits of Street View House Numbers (Netzer et al. 2011,
// http://ufldl.stanford.edu/housenumbers), MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017):
// small images of one size, which are held in memory. image_array.h has their files.

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

struct Cifar10Spec : HeldImagesRow<Cifar10Spec> {
  static constexpr auto names = std::to_array<std::string_view>({"cifar10"});
  static const HeldImages& images();
  bool operator==(const Cifar10Spec&) const = default;
};

struct Cifar100Spec : HeldImagesRow<Cifar100Spec> {
  static constexpr auto names = std::to_array<std::string_view>({"cifar100"});
  static const HeldImages& images();
  bool operator==(const Cifar100Spec&) const = default;
};

struct SvhnSpec : HeldImagesRow<SvhnSpec> {
  static constexpr auto names = std::to_array<std::string_view>({"svhn"});
  static const HeldImages& images();

  bool svhn_extra = false;

  bool operator==(const SvhnSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("svhn_extra", &SvhnSpec::svhn_extra, "train on the set `extra` too", OnResume::kFixed,
          InReport::kNotCompared);
  }

  std::optional<int64_t> official_samples() const { return svhn_extra ? 604'388 : 73'257; }
  std::string command() const {
    return svhn_extra ? "scripts/fetch_data svhn_extra" : "scripts/fetch_data svhn";
  }
  /// The images of `extra` follow those of train.
  std::vector<std::string> files(Split split) const;
};

struct MnistSpec : HeldImagesRow<MnistSpec> {
  static constexpr auto names = std::to_array<std::string_view>({"mnist"});
  static const HeldImages& images();
  bool operator==(const MnistSpec&) const = default;
};

struct FashionMnistSpec : HeldImagesRow<FashionMnistSpec> {
  static constexpr auto names = std::to_array<std::string_view>({"fashion_mnist"});
  static const HeldImages& images();
  bool operator==(const FashionMnistSpec&) const = default;
};

}  // namespace sdp
