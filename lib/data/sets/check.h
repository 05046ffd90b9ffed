#pragma once

// `sdp-train data check`: reads every sample and reports every problem.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/formats/token_shard.h"

namespace sdp {

/// Result for one split; members that do not apply to the kind of data are empty.
struct SplitReport {
  Split split;
  int64_t samples = 0;  ///< number of readable images, or of windows of data.sequence_length tokens

  std::vector<int64_t> images_of_class = {};
  /// Number of images by (height, width) in their files.
  std::map<std::pair<int64_t, int64_t>, int64_t> images_of_size = {};

  std::vector<TokenScan> shards = {};

  std::vector<std::string> problems = {};  ///< with file, member and offset
  std::string note = {};                   ///< Dataset::note()

  /// A function that appends to `problems`; the report must outlive it.
  OnProblem collect();
  /// Runs `check`; an exception that ends it counts as a problem.
  void run_to_first_error(const std::function<void()>& check);
  /// Counts an image of a class with the given (height, width).
  void count(int64_t label, std::pair<int64_t, int64_t> size);
};

/// Reads a split from end to end, decoding images with the given number of threads. Everything that is wrong
/// with the data or does not match the model is added to `problems` and not thrown. Progress is reported in
/// decoded images or in shards of tokens.
SplitReport check_split(const DataSpec& spec, const ModelSpec& model, Split split, int64_t threads,
                        const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
