#pragma once

// Labelled images, addressed by their index in the data set's official file order.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "spec/experiment_spec.h"

namespace sdp {

struct ImageShape {
  int64_t channels;
  int64_t height;
  int64_t width;

  int64_t numel() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

/// Per channel, of pixel values in 0..1.
struct Normalization {
  std::vector<float> mean;
  std::vector<float> stddev;
};

/// All methods are const and may be called by several threads at once. An index outside 0..size()-1 or a span
/// of another size than shape().numel() throws std::logic_error.
class ImageDataset {
 public:
  virtual ~ImageDataset() = default;

  virtual int64_t size() const = 0;
  virtual ImageShape shape() const = 0;
  virtual int64_t num_classes() const = 0;
  virtual int64_t label(int64_t index) const = 0;
  /// Fills `chw` with the pixels of one image, [channels, height, width], 0..255.
  virtual void read(int64_t index, std::span<uint8_t> chw) const = 0;
  virtual const Normalization& normalization() const = 0;
};

enum class Split { kTrain, kTest };

/// Opens and checks the data set of the spec. Throws UsageError when data.path is empty, and DataError that
/// names the file, the member and the offset when something is missing, damaged or ambiguous.
std::unique_ptr<ImageDataset> open_dataset(const DataSpec& spec, Split split);

}  // namespace sdp
