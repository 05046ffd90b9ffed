#pragma once

// What `sdp-train data check` finds: every sample read, every problem told.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/formats/token_shard.h"

namespace sdp {

/// Of one split; the members that the kind of data has no use for are empty.
struct SplitReport {
  Split split;
  int64_t samples = 0;  ///< that can be read: images, or windows of data.sequence_length tokens

  std::vector<int64_t> images_of_class = {};
  /// Images by (height, width) in their files.
  std::map<std::pair<int64_t, int64_t>, int64_t> images_of_size = {};

  std::vector<TokenScan> shards = {};

  std::vector<std::string> problems = {};  ///< with file, member and offset
  std::string note = {};                   ///< Dataset::note()

  /// Appends what it is told to `problems`; the report must outlive it.
  OnProblem collect();
  /// Runs `check`; what ends it is a problem.
  void run_to_first_error(const std::function<void()>& check);
  /// An image of a class and (height, width).
  void count(int64_t label, std::pair<int64_t, int64_t> size);
};

/// Reads a split from end to end, with as many threads as told where images have to be decoded. Whatever is
/// wrong with the data, or does not fit the model, is in `problems`; nothing is thrown for it. Progress is
/// told of images that are decoded and shards of tokens.
SplitReport check_split(const DataSpec& spec, const ModelSpec& model, Split split, int64_t threads,
                        const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
