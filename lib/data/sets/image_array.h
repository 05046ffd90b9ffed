#pragma once

// Data sets of small images that are held in memory as a whole.

#include <cstdint>
#include <span>
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

}  // namespace sdp
