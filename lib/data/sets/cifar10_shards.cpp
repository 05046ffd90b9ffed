#include "data/sets/cifar10_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "data/attempt.h"
#include "data/formats/image.h"
#include "data/formats/tar_shard.h"
#include "data/sets/folder.h"
#include "spec/error.h"

namespace sdp {

namespace {

namespace fs = std::filesystem;

std::string_view prefix_of(Split split) {
  return split == Split::kTrain ? "train-" : "test-";
}

bool is_shard(std::string_view name, Split split) {
  return name.starts_with(prefix_of(split)) && name.ends_with(".tar");
}

/// The number in a shard's name; std::nullopt if there is none.
std::optional<int64_t> shard_number(std::string_view name, Split split) {
  const std::string_view digits = name.substr(0, name.size() - 4).substr(prefix_of(split).size());
  int64_t number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

/// The shards of a split in order of their numbers; checks that these are 0, 1, 2, ...
std::vector<fs::path> ordered_shards(const fs::path& folder, const std::vector<std::string>& names,
                                     Split split, const OnProblem& on_problem) {
  std::vector<std::pair<int64_t, fs::path>> shards;
  for (const std::string& name : names) {
    if (!is_shard(name, split)) continue;
    if (const std::optional<int64_t> number = shard_number(name, split))
      shards.emplace_back(*number, folder / name);
    else
      on_problem(fmt::format("{}: shards are named {}NNNNNN.tar, with a number.", (folder / name).string(),
                             prefix_of(split)));
  }
  if (shards.empty())
    on_problem(fmt::format("{}: no {}NNNNNN.tar. Found {}. Shards are numbered 0, 1, 2, ...", folder.string(),
                           prefix_of(split), enumerate(names)));

  std::sort(shards.begin(), shards.end());
  std::vector<fs::path> paths;
  int64_t expected = 0;
  for (const auto& [number, path] : shards) {
    if (number != expected)
      on_problem(
          fmt::format("{}: expected shard {} in its place. Shards are numbered 0, 1, 2, ..., none missing "
                      "and none twice.",
                      path.string(), expected));
    expected = number + 1;
    paths.push_back(path);
  }
  return paths;
}

void append_sample(const fs::path& shard, const LabelledImage& sample, const OnProblem& on_problem,
                   ImageArray& images) {
  try {
    const std::vector<uint8_t> chw = decode_image(sample.image.data, images.shape.height, images.shape.width);
    images.pixels.insert(images.pixels.end(), chw.begin(), chw.end());
    images.labels.push_back(static_cast<uint8_t>(sample.label));
  } catch (const DataError& error) {
    on_problem(fmt::format("{}: {}.", place_of(shard, sample.image), error.what()));
  }
}

}  // namespace

bool has_shards(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return is_shard(name, Split::kTrain) || is_shard(name, Split::kTest);
  });
}

void append_shards(const fs::path& folder, const std::vector<std::string>& names, Split split,
                   const OnProblem& on_problem, ImageArray& images) {
  for (const fs::path& shard : ordered_shards(folder, names, split, on_problem)) {
    const auto samples = attempt(on_problem, [&] { return read_image_shard(shard, images.num_classes); });
    if (!samples) continue;
    for (const LabelledImage& sample : *samples)
      append_sample(shard, sample, on_problem, images);
  }
}

}  // namespace sdp
