#pragma once

// MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): 10 classes of 28 x 28 gray images. Read
// from the official IDX files, which may be packed by gzip: train-images-idx3-ubyte and
// t10k-images-idx3-ubyte, with a header of big-endian numbers (magic number 2051, N, 28, 28), and
// train-labels-idx1-ubyte and t10k-labels-idx1-ubyte (2049, N).

#include <filesystem>

#include "data/sets/set_row.h"

namespace sdp {

struct MnistSpec : HeldImagesRow {
  static constexpr auto names = std::to_array<std::string_view>({"mnist"});

  bool operator==(const MnistSpec&) const = default;
  static std::vector<Augmentation> usual_augmentation() { return {}; }
  static const Normalization& normalization();
  static std::optional<int64_t> official_samples() { return 60'000; }
  std::vector<std::string> class_names(const DataSpec& data) const;
  MissingData missing() const;
};

struct FashionMnistSpec : HeldImagesRow {
  static constexpr auto names = std::to_array<std::string_view>({"fashion_mnist"});

  bool operator==(const FashionMnistSpec&) const = default;
  static std::vector<Augmentation> usual_augmentation() { return {Augmentation::kCrop, Augmentation::kFlip}; }
  static const Normalization& normalization();
  static std::optional<int64_t> official_samples() { return 60'000; }
  std::vector<std::string> class_names(const DataSpec& data) const;
  MissingData missing() const;
};

ImageArray read_set(const MnistSpec&, const DataSpec& data, Split split, const OnProblem& on_problem);
ImageArray read_set(const FashionMnistSpec&, const DataSpec& data, Split split, const OnProblem& on_problem);

/// Reads one split from `folder`; of a file and the packed one, the file. Every problem is passed to
/// `on_problem`. If that returns, the result has the images that could be read: those before damaged data,
/// without those with an invalid label.
ImageArray read_mnist(const std::filesystem::path& folder, Split split, const OnProblem& on_problem);

}  // namespace sdp
