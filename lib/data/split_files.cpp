#include "data/split_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <system_error>

#include "io/file.h"
#include "spec/error.h"
#include "spec/text.h"

namespace sdp {
namespace fs = std::filesystem;

namespace {

std::string_view key_of(Split split) {
  return split == Split::kTrain ? "data.train_files" : "data.test_files";
}

/// May be empty.
std::vector<fs::path> matching(const ShardPatterns& patterns, Split split, const ShardNames& names) {
  const std::optional<std::string>& pattern = patterns.of(split);
  return pattern ? files_matching(patterns.folder, *pattern) : default_files(patterns.folder, split, names);
}

[[noreturn]] void fail_without_match(const ShardPatterns& patterns, Split split) {
  const std::string& pattern = *patterns.of(split);
  if (pattern.find('/') != std::string::npos)
    throw UsageError(fmt::format("{}: {} has a folder in it, expected names inside data.path ({}).",
                                 key_of(split), pattern, patterns.folder.string()));
  throw UsageError(
      fmt::format("{}: no file in {} matches {}.", key_of(split), patterns.folder.string(), pattern));
}

[[noreturn]] void fail_without_default(const ShardPatterns& patterns, Split split, const ShardNames& names) {
  const std::vector<fs::path> others = files_matching(patterns.folder, fmt::format("*{}", names.extension));
  const std::string wanted = split == Split::kTrain ? fmt::format("*train*{}", names.extension)
                                                    : fmt::format("*val*{0} or *test*{0}", names.extension);
  const std::string example =
      others.empty() ? "" : fmt::format(" ({}, ..)", others.front().filename().string());
  const std::string folder = patterns.folder.string();
  const char* without = split == Split::kTest ? "\nWithout a test set, set data.validation_share: 0.1." : "";
  const std::string expected =
      fmt::format(fmt::runtime(names.expected), shell_word(folder), shell_word(folder + "/shards"));
  throw DataError(fmt::format("data.path: {} holds no {}. Found {} other *{}{}. {}{}", folder, wanted,
                              others.size(), names.extension, example, expected, without));
}

[[noreturn]] void fail_shared(const ShardPatterns& patterns, const fs::path& file) {
  const std::string problem =
      fmt::format("{}: the name is one of a training shard and of a test shard", file.string());
  if (patterns.train || patterns.test)
    throw UsageError(fmt::format(
        "data.train_files and data.test_files: {}, so the model would be evaluated on what it was "
        "trained on. Name different files, or set the same pattern in both keys.",
        problem));
  const bool is_val = file.filename().string().find("val") != std::string::npos;
  throw DataError(fmt::format(
      "{}: it holds both 'train' and '{}'. Rename it, or set data.train_files and data.test_files.", problem,
      is_val ? "val" : "test"));
}

/// Refuses files that would be shards of the split if they were unpacked or had another case.
void refuse_almost_shards(const ShardPatterns& patterns, Split split, const ShardNames& names,
                          const std::vector<fs::path>& files) {
  constexpr std::array<std::string_view, 5> kPacked = {"", ".gz", ".bz2", ".xz", ".zst"};
  std::vector<std::string_view> words = {"train"};
  if (split == Split::kTest) words = {"val", "test"};
  const auto is_val = [](const fs::path& file) {
    return file.filename().string().find("val") != std::string::npos;
  };
  if (split == Split::kTest && !names.val_and_test && std::ranges::any_of(files, is_val)) words = {"val"};
  for (const fs::path& file : files_matching(patterns.folder, "*")) {
    const std::string name = file.filename().string();
    const std::string small = lower_case(name);
    const auto ends = [&](std::string_view packed) {
      return small.ends_with(fmt::format("{}{}", names.extension, packed)) ||
             (names.extension == ".tar" && small.ends_with(".tgz"));
    };
    const auto has = [&](const std::string& text) {
      return std::ranges::any_of(words, [&](auto word) { return text.find(word) != text.npos; });
    };
    if (!has(small) || std::ranges::none_of(kPacked, ends)) continue;
    if (name.ends_with(names.extension) && has(name)) continue;
    throw DataError(
        fmt::format("{0}: not read, as its name is not *train*{2}, *val*{2} or *test*{2}. Unpack it if it is "
                    "compressed, rename it, or set data.{1}_files.",
                    file.string(), split == Split::kTrain ? "train" : "test", names.extension));
  }
}

}  // namespace

std::vector<fs::path> default_files(const fs::path& folder, Split split, const ShardNames& names) {
  const auto named = [&](std::string_view word) {
    return files_matching(folder, fmt::format("*{}*{}", word, names.extension));
  };
  if (split == Split::kTrain) return named("train");
  const std::vector<fs::path> val = named("val");
  if (!val.empty() && !names.val_and_test) return val;
  const std::vector<fs::path> test = named("test");
  std::vector<fs::path> files;
  std::set_union(val.begin(), val.end(), test.begin(), test.end(), std::back_inserter(files));
  return files;
}

std::vector<fs::path> files_of_split(const ShardPatterns& patterns, Split split, const ShardNames& names) {
  std::vector<fs::path> files = matching(patterns, split, names);
  if (files.empty() && patterns.of(split)) fail_without_match(patterns, split);
  if (!patterns.of(split)) refuse_almost_shards(patterns, split, names, files);
  if (files.empty()) fail_without_default(patterns, split, names);
  // The same pattern in both keys means that evaluation on training data is intended.
  if (patterns.train && patterns.train == patterns.test) return files;
  const Split other = split == Split::kTrain ? Split::kTest : Split::kTrain;
  const std::vector<fs::path> others = matching(patterns, other, names);
  const auto shared = std::find_first_of(files.begin(), files.end(), others.begin(), others.end());
  if (shared != files.end()) fail_shared(patterns, *shared);
  return files;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw DataError(fmt::format("data.path: {} is not a folder. Expected the folder that holds the data set.",
                                folder.string()));
  return entry_names(folder);
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string enumerate(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  if (names.empty()) return "nothing";
  const size_t shown = std::min(names.size(), kMost);
  const std::string text = fmt::format("{:n}", std::span(names).first(shown));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

}  // namespace sdp
