// Which files of a folder are the shards of a split (tokens.h).

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "data/tokens.h"
#include "io/glob.h"
#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kExpected =
    "Expected shards of tokens as scripts/prepare_tokens.py or llm.c's scripts write them: *train*.bin and "
    "*val*.bin, or others that data.train_files and data.test_files name.";

std::vector<fs::path> files_named(const fs::path& folder, std::string_view word) {
  return files_matching(folder, fmt::format("*{}*.bin", word));
}

bool contains(const fs::path& file, std::string_view word) {
  return file.filename().string().find(word) != std::string::npos;
}

std::vector<fs::path> default_files(const fs::path& folder, Split split) {
  const std::string_view held_out = files_named(folder, "val").empty() ? "test" : "val";
  const std::string_view wanted = split == Split::kTrain ? "train" : held_out;
  const std::vector<fs::path> files = files_named(folder, wanted);
  for (const fs::path& file : files)
    if (contains(file, "train") && contains(file, held_out))
      throw DataError(
          fmt::format("{}: the name holds both 'train' and '{}', so it is unclear to which split the shard "
                      "belongs. Rename it, or set data.train_files and data.test_files.",
                      file.string(), held_out));
  if (!files.empty()) return files;
  const std::vector<fs::path> others = files_matching(folder, "*.bin");
  throw DataError(fmt::format(
      "data.path: {} holds no {}. Found {} other *.bin{}. {}", folder.string(),
      split == Split::kTrain ? "*train*.bin" : "*val*.bin or *test*.bin", others.size(),
      others.empty() ? "" : fmt::format(" ({}, ..)", others.front().filename().string()), kExpected));
}

std::vector<fs::path> files_of(const DataSpec& spec, Split split) {
  const std::optional<std::string>& pattern = split == Split::kTrain ? spec.train_files : spec.test_files;
  if (!pattern) return default_files(spec.path, split);
  const std::string_view key = split == Split::kTrain ? "data.train_files" : "data.test_files";
  if (pattern->find('/') != std::string::npos)
    throw UsageError(fmt::format("{}: '{}' has a folder in it, expected names inside data.path ({}).", key,
                                 *pattern, spec.path));
  std::vector<fs::path> files = files_matching(spec.path, *pattern);
  if (files.empty())
    throw DataError(fmt::format("{}: no file in {} matches '{}'. {}", key, spec.path, *pattern, kExpected));
  return files;
}

}  // namespace

std::vector<fs::path> token_files(const DataSpec& spec, Split split) {
  std::vector<fs::path> files = files_of(spec, split);
  // With the same pattern for both, training on what is evaluated is meant.
  if ((!spec.train_files && !spec.test_files) || spec.train_files == spec.test_files) return files;
  const std::vector<fs::path> others = files_of(spec, split == Split::kTrain ? Split::kTest : Split::kTrain);
  const auto shared = std::find_first_of(files.begin(), files.end(), others.begin(), others.end());
  if (shared != files.end())
    throw UsageError(
        fmt::format("data.train_files and data.test_files both have {}: the model would be evaluated on "
                    "what it was trained on. Name different files, or the same pattern in both keys.",
                    shared->string()));
  return files;
}

}  // namespace sdp
