#pragma once

// `sdp-train data check`: reads every sample and reports every problem.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "formats/token_shard.h"

namespace sdp {

/// Means over an image's pixels of each channel's value, in 0..1, and of the value's square.
struct PixelMeans {
  std::vector<double> value;
  std::vector<double> square;

  /// `pixel(channel, i)`: value number i of a channel, in 0..255. Sums of whole numbers are exact.
  template <class Pixel>
  static PixelMeans of(int64_t channels, int64_t pixels, const Pixel& pixel) {
    PixelMeans means;
    for (int64_t channel = 0; channel < channels; ++channel) {
      double sum = 0;
      double sum_of_squares = 0;
      for (int64_t i = 0; i < pixels; ++i) {
        const double value = pixel(channel, i);
        sum += value;
        sum_of_squares += value * value;
      }
      means.value.push_back(sum / 255 / static_cast<double>(pixels));
      means.square.push_back(sum_of_squares / (255 * 255) / static_cast<double>(pixels));
    }
    return means;
  }
};

/// Result for one split; members that do not apply to the kind of data are empty.
struct SplitReport {
  Split split;
  int64_t samples = 0;  ///< number of readable images, or of windows of data.sequence_length tokens

  std::vector<int64_t> images_of_class = {};
  /// Number of images by (height, width) in their files.
  std::map<std::pair<int64_t, int64_t>, int64_t> images_of_size = {};
  PixelMeans sum_of_means = {};  ///< over the images

  std::vector<TokenScan> shards = {};

  std::vector<std::string> problems = {};  ///< with file, member and offset
  std::string note = {};                   ///< Dataset::note()

  /// A function that appends to `problems`; the report must outlive it.
  OnProblem collect();
  /// Runs `check`; an exception that ends it counts as a problem.
  void run_to_first_error(const std::function<void()>& check);
  /// Counts an image.
  void count(int64_t label, const ImageShape& shape, const PixelMeans& means);
  /// Mean and standard deviation of the images that were counted, each of which has the same weight, whatever
  /// its size, as it has in training.
  Normalization normalization() const;
};

/// Reads a split from end to end, decoding images with the given number of threads. Everything that is wrong
/// with the data or does not match the model is added to `problems` and not thrown. Progress is reported in
/// decoded images or in shards of tokens.
SplitReport check_split(const DataSpec& spec, const ModelSpec& model, Split split, int64_t threads,
                        const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
