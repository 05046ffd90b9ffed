#include "data/sets/array_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/files/safetensors.h"
#include "data/attempt.h"
#include "data/sets/cifar10_shards.h"
#include "data/sets/folder.h"
#include "spec/text.h"

namespace sdp {

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
  if (const std::vector<std::string> faults = faults_of(*file, files.set); !faults.empty()) {
    on_problem(fmt::format("{}: {}. Write the file again: {} {}", path.string(), fmt::join(faults, "; "),
                           files.command, shell_word(path.parent_path().string())));
    return;
  }
  const std::span<const std::byte> pixels = file->find("images")->data;
  const std::span<const std::byte> labels = file->find("labels")->data;
  const auto numel = static_cast<size_t>(images.shape.numel());
  const auto channels = static_cast<size_t>(images.shape.channels);
  images.pixels.reserve(images.pixels.size() + pixels.size());
  for (size_t image = 0; image < labels.size(); ++image) {
    const auto label = std::to_integer<uint8_t>(labels[image]);
    if (label >= images.num_classes) {
      on_problem(fmt::format("{}: label {} of image {}, expected 0..{}. Write the file again: {} {}",
                             path.string(), label, image, images.num_classes - 1, files.command,
                             shell_word(path.parent_path().string())));
      continue;
    }
    images.labels.push_back(label);
    append_planes(pixels.subspan(image * numel, numel), channels, images.pixels);
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
