#pragma once

// Which files of a folder are the shards of a split.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"

namespace sdp {

/// How a data set names its shards.
struct ShardNames {
  std::string_view extension;  ///< with its dot
  bool val_and_test;           ///< whether *test* is evaluated on beside *val*, or only where there is none
  std::string_view expected;   ///< "Expected ..." for the message that there are none
};

/// data.train_files and data.test_files.
struct ShardPatterns {
  std::optional<std::string> train = {};
  std::optional<std::string> test = {};
};

/// Of a data set that has these keys.
template <class Set>
ShardPatterns patterns_of(const Set& set) {
  return {.train = set.train_files, .test = set.test_files};
}

/// *train*EXTENSION, or *val*EXTENSION and *test*EXTENSION (see val_and_test), in order of their names. May
/// be empty.
std::vector<std::filesystem::path> default_files(const std::filesystem::path& folder, Split split,
                                                 const ShardNames& names);

/// The files in data.path, `folder`, that match data.train_files or data.test_files, by default
/// default_files(), in order of their names. Throws UsageError that names the key when its pattern matches
/// nothing or has a folder in it, DataError when there is no file by default. A file that is of the other
/// split too is a UsageError when one of the keys is set and a DataError when none is; only where both keys
/// are set to the same pattern it is meant.
std::vector<std::filesystem::path> files_of_split(const std::filesystem::path& folder,
                                                  const ShardPatterns& patterns, Split split,
                                                  const ShardNames& names);

}  // namespace sdp
