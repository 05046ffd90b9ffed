#include "data/image_array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "data/split_files.h"
#include "formats/image.h"
#include "formats/tar_shard.h"
#include "io/safetensors.h"
#include "spec/error.h"
#include "spec/text.h"

namespace sdp {

ArrayDataset::ArrayDataset(ImageArray array) : array_(std::move(array)) {
  if (array_.pixels.size() != array_.labels.size() * static_cast<size_t>(array_.shape.numel()))
    throw std::logic_error(
        fmt::format("ArrayDataset: {} pixels for {} labels", array_.pixels.size(), array_.labels.size()));
}

void ArrayDataset::read(int64_t index, std::span<uint8_t> chw) const {
  const auto numel = static_cast<size_t>(array_.shape.numel());
  if (chw.size() != numel) throw std::logic_error("ArrayDataset::read: the span does not fit an image");
  std::copy_n(array_.pixels.data() + checked(index) * numel, numel, chw.data());
}

DataIdentity ArrayDataset::identity() const {
  const uint64_t labels = XXH3_64bits(array_.labels.data(), array_.labels.size());
  const uint64_t all = XXH3_64bits_withSeed(array_.pixels.data(), array_.pixels.size(), labels);
  return {.samples = size(), .hash = fmt::format("{:016x}", all)};
}

size_t ArrayDataset::checked(int64_t index) const {
  if (index < 0 || index >= size()) throw std::logic_error(fmt::format("ArrayDataset: no image {}", index));
  return static_cast<size_t>(index);
}

namespace {

namespace fs = std::filesystem;

/// Error message for a folder that lacks a file: the command that writes it, of the official files if they
/// are there.
std::string missing_file(const ArrayFiles& files, const std::string& name, const fs::path& folder,
                         const std::vector<std::string>& found) {
  const bool is_official = std::any_of(files.set.official_files.begin(), files.set.official_files.end(),
                                       [&](std::string_view file) { return contains(found, file); });
  const std::string path = shell_word(folder.string());
  return fmt::format("data.path: {} holds no {}. Found {}. To write it{}, run:\n  {} {}{}", folder.string(),
                     name, enumerate(found), is_official ? " from the official files" : "", files.command,
                     is_official ? fmt::format("--from {} ", path) : "", path);
}

/// Appends what is wrong with a tensor, which is to have U8 values and these sizes; of the first, N, any but
/// 0.
void check_tensor(const SafetensorsFile& file, std::string_view name, const std::vector<int64_t>& sizes,
                  std::vector<std::string>& faults) {
  const std::string expected =
      sizes.empty() ? "U8 [N]" : fmt::format("U8 [N, {}] with N of at least 1", fmt::join(sizes, ", "));
  const TensorView* tensor = file.find(name);
  if (tensor == nullptr) {
    faults.push_back(fmt::format("there is no tensor {}, expected {}", name, expected));
    return;
  }
  const std::vector<int64_t>& shape = tensor->entry.shape;
  if (tensor->entry.dtype != DType::kU8 || shape.empty() || shape[0] == 0 ||
      !std::equal(shape.begin() + 1, shape.end(), sizes.begin(), sizes.end()))
    faults.push_back(fmt::format("{} is {} [{}], expected {}", name, dtype_name(tensor->entry.dtype),
                                 fmt::join(shape, ", "), expected));
}

void check_names(const SafetensorsFile& file, const std::vector<std::string>& expected,
                 std::vector<std::string>& faults) {
  const auto found = file.metadata().find("class_names");
  const nlohmann::json names = found == file.metadata().end()
                                   ? nlohmann::json()
                                   : nlohmann::json::parse(found->second, nullptr, false);
  if (!names.is_array()) {
    faults.push_back("its metadata has no class_names, expected a JSON list of the classes' names");
    return;
  }
  if (names.size() != expected.size())
    faults.push_back(fmt::format("class_names has {} names, expected {}", names.size(), expected.size()));
  for (size_t label = 0; label < std::min(names.size(), expected.size()); ++label)
    if (names[label] != expected[label]) {
      faults.push_back(fmt::format("class_names has {} for label {}, expected {:?}",
                                   names[label].dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                                   label, expected[label]));
      return;
    }
}

std::vector<std::string> faults_of(const SafetensorsFile& file, const HeldImages& set) {
  std::vector<std::string> faults;
  check_tensor(file, "images", {set.shape.height, set.shape.width, set.shape.channels}, faults);
  check_tensor(file, "labels", {}, faults);
  check_names(file, set.class_names, faults);
  if (!faults.empty()) return faults;
  const int64_t images = file.find("images")->entry.shape[0];
  const int64_t labels = file.find("labels")->entry.shape[0];
  if (images != labels) faults.push_back(fmt::format("{} images have {} labels", images, labels));
  return faults;
}

/// Appends an image of [H, W, C] as [C, H, W].
void append_planes(std::span<const std::byte> pixels, size_t channels, std::vector<uint8_t>& planes) {
  size_t place = planes.size();
  planes.resize(place + pixels.size());
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t at = channel; at < pixels.size(); at += channels)
      planes[place++] = std::to_integer<uint8_t>(pixels[at]);
}

void append_file(const ArrayFiles& files, const fs::path& path, const OnProblem& on_problem,
                 ImageArray& images) {
  const auto file = attempt(on_problem, [&] { return SafetensorsFile(path); });
  if (!file) return;
  const auto report = [&](const std::string& fault) {
    on_problem(fmt::format("{}: {}. Write the file again: {} {}", path.string(), fault, files.command,
                           shell_word(path.parent_path().string())));
  };
  if (const std::vector<std::string> faults = faults_of(*file, files.set); !faults.empty())
    return report(fmt::format("{}", fmt::join(faults, "; ")));
  const std::span<const std::byte> pixels = file->find("images")->data;
  const std::span<const std::byte> labels = file->find("labels")->data;
  const auto numel = static_cast<size_t>(images.shape.numel());
  const auto channels = static_cast<size_t>(images.shape.channels);
  images.pixels.reserve(images.pixels.size() + pixels.size());
  for (size_t image = 0; image < labels.size(); ++image) {
    const auto label = std::to_integer<uint8_t>(labels[image]);
    if (label >= images.num_classes) {
      report(fmt::format("label {} of image {}, expected 0..{}", label, image, images.num_classes - 1));
      continue;
    }
    images.labels.push_back(label);
    append_planes(pixels.subspan(image * numel, numel), channels, images.pixels);
  }
}

std::string_view prefix_of(Split split) {
  return split == Split::kTrain ? "train-" : "test-";
}

bool is_shard(std::string_view name, Split split) {
  return name.starts_with(prefix_of(split)) && name.ends_with(".tar");
}

/// The number in a shard's name; std::nullopt if there is none.
std::optional<int64_t> shard_number(std::string_view name, Split split) {
  const std::string_view digits = name.substr(0, name.size() - 4).substr(prefix_of(split).size());
  const auto number = number_in<int64_t>(digits);
  return number && *number >= 0 ? number : std::nullopt;
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
    const std::vector<uint8_t> chw = decode_image(sample.data, images.shape.height, images.shape.width);
    images.pixels.insert(images.pixels.end(), chw.begin(), chw.end());
    images.labels.push_back(static_cast<uint8_t>(sample.label));
  } catch (const DataError& error) {
    on_problem(fmt::format("{}: {}.", place_of(shard, sample.image), error.what()));
  }
}

/// Whether the names of a folder's files include a shard of any split.
bool has_shards(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return is_shard(name, Split::kTrain) || is_shard(name, Split::kTest);
  });
}

/// Appends the images of a split. Shards and images that cannot be read are left out.
void append_shards(const fs::path& folder, const std::vector<std::string>& names, Split split,
                   const OnProblem& on_problem, ImageArray& images) {
  for (const fs::path& shard : ordered_shards(folder, names, split, on_problem)) {
    const auto samples = attempt(on_problem, [&] { return read_image_shard(shard, images.num_classes); });
    if (!samples) continue;
    for (const LabelledImage& sample : *samples)
      append_sample(shard, sample, on_problem, images);
  }
}

}  // namespace

ImageArray read_arrays(const ArrayFiles& files, const fs::path& folder, Split split,
                       const OnProblem& on_problem) {
  ImageArray images{.shape = files.set.shape,
                    .num_classes = static_cast<int64_t>(files.set.class_names.size())};
  const auto found = attempt(on_problem, [&] { return names_in(folder); });
  if (!found) return images;
  if (files.set.as_shards && has_shards(*found)) {
    if (contains(*found, "train.safetensors") || contains(*found, "val.safetensors"))
      on_problem(
          fmt::format("data.path: {} holds both arrays (.safetensors) and tar shards, so it is unclear which "
                      "to read. Found {}. "
                      "Move one of them to another folder.",
                      folder.string(), enumerate(*found)));
    else
      append_shards(folder, *found, split, on_problem, images);
    return images;
  }
  for (const std::string& name : files.names)
    if (contains(*found, name))
      append_file(files, folder / name, on_problem, images);
    else
      on_problem(missing_file(files, name, folder, *found));
  return images;
}

}  // namespace sdp
