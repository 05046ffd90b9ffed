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
  bool val_and_test;  ///< whether *test* is used for evaluation besides *val*, or only if there is no *val*
  /// "Expected ..." for the message about missing shards; {0}: the folder, {1}: one in it.
  std::string_view expected;
};

/// The keys of a data set's shards.
struct ShardPatterns {
  std::filesystem::path folder = {};      ///< data.path
  std::optional<std::string> train = {};  ///< data.train_files
  std::optional<std::string> test = {};   ///< data.test_files

  const std::optional<std::string>& of(Split split) const { return split == Split::kTrain ? train : test; }
};

/// *train*EXTENSION, or *val*EXTENSION and *test*EXTENSION (see val_and_test), sorted by name. May be empty.
std::vector<std::filesystem::path> default_files(const std::filesystem::path& folder, Split split,
                                                 const ShardNames& names);

/// The files in data.path that match data.train_files or data.test_files, by default default_files(), sorted
/// by name. Throws UsageError naming the key if its pattern matches nothing or contains a folder, and
/// DataError if no default file exists. A file that belongs to the other split too is a UsageError if one of
/// the keys is set and a DataError if none is; it is allowed only if both keys have the same pattern. Without
/// a pattern, a file that would be a shard if it were unpacked or had another case (train-1.tar.gz,
/// Train-1.TAR) is a DataError.
std::vector<std::filesystem::path> files_of_split(const ShardPatterns& patterns, Split split,
                                                  const ShardNames& names);

// The contents of a data set's folder: for finding its files, and for messages about missing ones.

/// Sorted names of a folder's contents. Throws DataError if it is not a folder or cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& folder);

bool contains(const std::vector<std::string>& names, std::string_view name);

/// "a", "b" and 7 more, in quotes as names may have blanks and line breaks; "nothing" for an empty list.
std::string enumerate(const std::vector<std::string>& names);

}  // namespace sdp
