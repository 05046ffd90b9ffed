#pragma once

// CIFAR-10 and CIFAR-100 (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html; of CIFAR-100 the fine
// labels), the cropped digits of Street View House Numbers (Netzer et al. 2011,
// http://ufldl.stanford.edu/housenumbers), MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017).

#include "data/held_images.h"

namespace sdp {

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
