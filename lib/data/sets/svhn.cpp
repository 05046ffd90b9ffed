#include "data/sets/svhn.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/attempt.h"
#include "data/formats/mat5.h"
#include "data/sets/folder.h"
#include "data/sets/image_array.h"

namespace sdp {

namespace {

namespace fs = std::filesystem;

constexpr ImageShape kSvhnShape{.channels = 3, .height = 32, .width = 32};
constexpr int64_t kSvhnImageBytes = 3072;
constexpr size_t kSide = 32;
constexpr std::string_view kSvhnFiles =
    "Expected SVHN's cropped digits: train_32x32.mat, test_32x32.mat and, for data.svhn_extra, "
    "extra_32x32.mat.";

/// Contents of the site's format 1, as downloaded or unpacked.
constexpr std::array<std::string_view, 7> kFullNumbers = {
    "digitStruct.mat", "train.tar.gz", "test.tar.gz", "extra.tar.gz", "train", "test", "extra"};

std::vector<std::string> file_names(Split split, bool with_extra) {
  if (split == Split::kTest) return {"test_32x32.mat"};
  if (with_extra) return {"train_32x32.mat", "extra_32x32.mat"};
  return {"train_32x32.mat"};
}

/// Error message for a folder that lacks a file.
std::string missing_file(const fs::path& folder, const std::string& name,
                         const std::vector<std::string>& found) {
  for (const std::string_view other : kFullNumbers)
    if (contains(found, other))
      return fmt::format(
          "{}: missing {}. {} is of the full numbers (format 1), of which images differ in size. {}",
          folder.string(), name, other, kSvhnFiles);
  return fmt::format("{}: missing {}. Found {}. {}", folder.string(), name, enumerate(found), kSvhnFiles);
}

DataError wrong_sizes(const Mat5Array& array, std::string_view expected) {
  return DataError(fmt::format("{}: {}, expected {}. This is not SVHN's file of cropped digits.",
                               array.place(), fmt::join(array.dimensions(), " x "), expected));
}

/// X and y, with checked sizes. MATLAB arrays have no trailing dimension of 1.
struct Variables {
  Mat5Array pixels;
  Mat5Array labels;

  int64_t images() const { return pixels.numel() / kSvhnImageBytes; }
};

Variables open_variables(const Mat5File& file) {
  Variables variables{.pixels = file.open("X"), .labels = file.open("y")};
  const std::vector<int64_t>& sizes = variables.pixels.dimensions();
  const bool fits = sizes.size() == 3 || sizes.size() == 4;
  if (!fits || sizes[0] != kSvhnShape.width || sizes[1] != kSvhnShape.height ||
      sizes[2] != kSvhnShape.channels)
    throw wrong_sizes(variables.pixels, "32 x 32 x 3 x N");
  if (variables.labels.dimensions() != std::vector<int64_t>{variables.images(), 1})
    throw wrong_sizes(variables.labels, fmt::format("{} x 1, as X has images", variables.images()));
  if (variables.images() == 0) throw wrong_sizes(variables.pixels, "at least one image");
  return variables;
}

std::vector<uint8_t> read_labels(Mat5Array& array) {
  std::vector<uint8_t> labels(static_cast<size_t>(array.numel()));
  array.read(labels);
  array.finish();
  return labels;
}

/// Appends an image stored by columns, [C, W, H], as [C, H, W].
void append_transposed(const std::array<uint8_t, kSvhnImageBytes>& columns, std::vector<uint8_t>& pixels) {
  const size_t first = pixels.size();
  pixels.resize(first + kSvhnImageBytes);
  for (size_t channel = 0; channel < 3; ++channel)
    for (size_t y = 0; y < kSide; ++y)
      for (size_t x = 0; x < kSide; ++x)
        pixels[first + (channel * kSide + y) * kSide + x] = columns[(channel * kSide + x) * kSide + y];
}

void append_file(const fs::path& path, const OnProblem& on_problem, ImageArray& images) {
  const auto file = attempt(on_problem, [&] { return Mat5File(path); });
  if (!file) return;
  auto variables = attempt(on_problem, [&] { return open_variables(*file); });
  if (!variables) return;
  Mat5Array& x = variables->pixels;
  Mat5Array& y = variables->labels;
  const auto labels = attempt(on_problem, [&] { return read_labels(y); });
  if (!labels) return;

  images.pixels.reserve(images.pixels.size() + static_cast<size_t>(x.numel()));
  std::array<uint8_t, kSvhnImageBytes> columns;
  const auto read_image = [&] { return x.read(columns), true; };
  for (size_t image = 0; image < labels->size(); ++image) {
    if (!attempt(on_problem, read_image)) return;
    const uint8_t label = (*labels)[image];
    if (label < 1 || label > 10) {
      on_problem(fmt::format(
          "{}: label {} of image {}, expected 1..10 (10 is the digit 0). Download the file again.", y.place(),
          label, image));
      continue;
    }
    images.labels.push_back(label % 10);
    append_transposed(columns, images.pixels);
  }
  attempt(on_problem, [&] { return x.finish(), true; });
}

}  // namespace

ImageArray read_svhn(const fs::path& folder, Split split, bool with_extra, const OnProblem& on_problem) {
  ImageArray images{.shape = kSvhnShape, .num_classes = 10};
  const auto found = attempt(on_problem, [&] { return names_in(folder); });
  if (!found) return images;
  for (const std::string& name : file_names(split, with_extra)) {
    if (contains(*found, name))
      append_file(folder / name, on_problem, images);
    else
      on_problem(missing_file(folder, name, *found));
  }
  return images;
}

const Normalization& SvhnSpec::normalization() {
  static const Normalization normalization{.mean = {0.4377, 0.4438, 0.4728},
                                           .stddev = {0.1980, 0.2010, 0.1970}};
  return normalization;
}

std::vector<std::string> SvhnSpec::class_names(const DataSpec&) const {
  return digit_names();
}

MissingData SvhnSpec::missing() const {
  return {.files = "SVHN's cropped digits: train_32x32.mat and test_32x32.mat",
          .command = svhn_extra ? "scripts/fetch_data svhn_extra" : "scripts/fetch_data svhn",
          .other_data = std::string(kExampleImagesText),
          .other_commands = other_small_images()};
}

ImageArray read_set(const SvhnSpec& spec, const DataSpec& data, Split split, const OnProblem& on_problem) {
  return read_svhn(data.path, split, spec.svhn_extra, on_problem);
}

}  // namespace sdp
