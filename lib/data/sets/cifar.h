#pragma once

// CIFAR-10 and CIFAR-100 (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html): 32 x 32 RGB, 10 and
// 100 classes.

#include <filesystem>

#include "data/sets/set_row.h"

namespace sdp {

struct Cifar10Spec : HeldImagesRow {
  static constexpr auto names = std::to_array<std::string_view>({"cifar10"});

  bool operator==(const Cifar10Spec&) const = default;
  static std::vector<Augmentation> usual_augmentation() { return {Augmentation::kCrop, Augmentation::kFlip}; }
  static const Normalization& normalization();
  static std::optional<int64_t> official_samples() { return 50'000; }
  std::vector<std::string> class_names(const DataSpec& data) const;
  MissingData missing() const;
};

struct Cifar100Spec : HeldImagesRow {
  static constexpr auto names = std::to_array<std::string_view>({"cifar100"});

  bool operator==(const Cifar100Spec&) const = default;
  static std::vector<Augmentation> usual_augmentation() { return {Augmentation::kCrop, Augmentation::kFlip}; }
  static const Normalization& normalization();
  static std::optional<int64_t> official_samples() { return 50'000; }
  std::vector<std::string> class_names(const DataSpec& data) const;
  MissingData missing() const;
};

ImageArray read_set(const Cifar10Spec&, const DataSpec& data, Split split, const OnProblem& on_problem);
ImageArray read_set(const Cifar100Spec&, const DataSpec& data, Split split, const OnProblem& on_problem);

/// Reads one split. The contents of the folder determine the format:
///
/// - the official binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin, in `folder` itself
///   or in its sub-folder cifar-10-batches-bin. Records of 1 label byte and 3072 pixel bytes, RRR GGG BBB.
/// - tar shards of JPEG, see cifar10_shards.h.
///
/// Every problem is passed to `on_problem`. If that returns, the result has the images that could be read;
/// records that are truncated or have an invalid label are left out.
ImageArray read_cifar10(const std::filesystem::path& folder, Split split, const OnProblem& on_problem);

/// The same for the official binary version: train.bin and test.bin, in `folder` or in its sub-folder
/// cifar-100-binary. A record has a label of 20 superclasses, the image's label of 100 classes, and 3072
/// pixel bytes.
ImageArray read_cifar100(const std::filesystem::path& folder, Split split, const OnProblem& on_problem);

}  // namespace sdp
