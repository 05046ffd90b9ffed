#pragma once

// Data sets of small images that are held in memory as a whole.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace sdp {

/// N labelled images of one size, in the data set's official order.
struct ImageArray {
  ImageShape shape;
  int64_t num_classes;
  Normalization normalization = {};
  std::vector<uint8_t> pixels = {};  ///< [N, C, H, W]
  std::vector<uint8_t> labels = {};  ///< [N], 0..num_classes-1

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

class ArrayDataset final : public ImageDataset {
 public:
  /// Throws std::logic_error if pixels and labels are for different numbers of images.
  explicit ArrayDataset(ImageArray array);

  const ImageArray& array() const { return array_; }

  int64_t size() const override { return array_.size(); }
  DataIdentity identity() const override;
  ImageShape shape() const override { return array_.shape; }
  int64_t num_classes() const override { return array_.num_classes; }
  int64_t label(int64_t index) const override { return array_.labels[checked(index)]; }
  void read(int64_t index, std::span<uint8_t> chw) const override;
  const Normalization& normalization() const override { return array_.normalization; }

 private:
  size_t checked(int64_t index) const;

  ImageArray array_;
};

// The files of images that are held in memory, which scripts/fetch_data makes of the official archives:
// train.safetensors, val.safetensors and, of SVHN, extra.safetensors. Each has the tensors
//
//   images   U8 [N, H, W, C]
//   labels   U8 [N], 0..number of classes - 1
//
// in the official order, and in its metadata `class_names`, the JSON list of the set's names by label.
// CIFAR-10 may also be tar shards of JPEG (tar_shard.h): train-000000.tar, train-000001.tar, ... and
// test-000000.tar, ..., numbered from 0; samples are in the order of shards, then of members.

/// A split as the set describes it (HeldImagesRow).
struct ArrayFiles {
  const HeldImages& set;
  std::vector<std::string> names;  ///< in the order of their samples
  std::string command;             ///< writes them into the folder that is its last word
};

/// Reads the images of a split from arrays or from tar shards. Every problem is passed to `on_problem`. If
/// that returns, the result has the images that could be read: those of whole files, without those that have
/// an invalid label.
ImageArray read_arrays(const ArrayFiles& files, const std::filesystem::path& folder, Split split,
                       const OnProblem& on_problem);

template <class Set>
ImageArray read_set(const Set& set, const DataSpec& data, Split split, const OnProblem& on_problem) {
  return read_arrays({Set::images(), set.files(split), set.command()}, data.path, split, on_problem);
}

}  // namespace sdp
