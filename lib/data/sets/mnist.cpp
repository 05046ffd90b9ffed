#include "data/sets/mnist.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/attempt.h"
#include "data/sets/folder.h"
#include "data/sets/image_array.h"
#include "io/file.h"

namespace sdp {

namespace {

namespace fs = std::filesystem;

constexpr ImageShape kMnistShape{.channels = 1, .height = 28, .width = 28};
constexpr size_t kMnistImageBytes = 784;
constexpr uint8_t kMnistClasses = 10;

struct GzCloser {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

/// The content of a file that may be packed: zlib recognizes gzip, of which it verifies the checksum.
std::vector<uint8_t> read_packed(const fs::path& path, const OnProblem& on_problem) {
  constexpr size_t kMostBytes = size_t{1}
                                << 28;  // several times MNIST; a damaged file may unpack to anything
  if (!attempt(on_problem, [&] { return check_regular_file(path), true; })) return {};
  const std::unique_ptr<gzFile_s, GzCloser> file(gzopen(path.c_str(), "rb"));
  std::vector<uint8_t> bytes;
  std::array<uint8_t, 1 << 16> piece;
  for (int count = 1; file && count > 0 && bytes.size() < kMostBytes;) {
    count = gzread(file.get(), piece.data(), static_cast<unsigned>(piece.size()));
    bytes.insert(bytes.end(), piece.begin(), piece.begin() + std::max(count, 0));
  }
  int error = Z_OK;
  const char* const message = file ? gzerror(file.get(), &error) : "it cannot be opened";
  if (!file || error != Z_OK)
    on_problem(fmt::format("{}: cannot be read: {}. Download the file again.", path.string(), message));
  if (!attempt(on_problem, [&] { return check_content(path, std::as_bytes(std::span(bytes))), true; }))
    return {};
  return bytes;
}

/// The data of an IDX file whose items have these sizes, as many whole items as can be read.
std::vector<uint8_t> read_idx(const fs::path& path, const std::vector<uint32_t>& item_sizes,
                              const OnProblem& on_problem) {
  std::vector<uint8_t> bytes = read_packed(path, on_problem);
  std::vector<uint32_t> header;  // magic number, items, sizes of an item; big-endian
  for (size_t at = 0; at + 4 <= bytes.size() && header.size() < 2 + item_sizes.size(); at += 4)
    header.push_back(uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 |
                     uint32_t{bytes[at + 2]} << 8 | bytes[at + 3]);
  std::vector<uint32_t> expected = {static_cast<uint32_t>(0x801 + item_sizes.size()),
                                    header.size() > 1 ? header[1] : 0};
  expected.insert(expected.end(), item_sizes.begin(), item_sizes.end());
  if (header != expected) {
    on_problem(fmt::format(
        "{}: the header is [{}], expected magic number {}, number of items [{}]. Download the file "
        "again.",
        path.string(), fmt::join(header, ", "), expected.front(), fmt::join(item_sizes, ", ")));
    return {};
  }
  size_t item_bytes = 1;
  for (const uint32_t size : item_sizes)
    item_bytes *= size;
  const size_t stated = header[1] * item_bytes;
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(4 * header.size()));
  if (bytes.size() != stated)
    on_problem(
        fmt::format("{}: {} bytes after the header, expected {} for {} items. Download the file again.",
                    path.string(), bytes.size(), stated, header[1]));
  bytes.resize(std::min(bytes.size(), stated) / item_bytes * item_bytes);
  return bytes;
}

std::optional<fs::path> find_file(const fs::path& folder, const std::vector<std::string>& found,
                                  const std::string& name, const OnProblem& on_problem) {
  for (const std::string& candidate : {name, name + ".gz"})
    if (contains(found, candidate)) return folder / candidate;
  on_problem(
      fmt::format("{}: missing {}, also packed as .gz. Found {}. Expected train-images-idx3-ubyte, "
                  "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte.",
                  folder.string(), name, enumerate(found)));
  return std::nullopt;
}

}  // namespace

ImageArray read_mnist(const fs::path& folder, Split split, const OnProblem& on_problem) {
  ImageArray images{.shape = kMnistShape, .num_classes = kMnistClasses};
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  const auto found = attempt(on_problem, [&] { return names_in(folder); });
  if (!found) return images;
  const auto images_path = find_file(folder, *found, prefix + "-images-idx3-ubyte", on_problem);
  const auto labels_path = find_file(folder, *found, prefix + "-labels-idx1-ubyte", on_problem);
  if (!images_path || !labels_path) return images;
  const std::vector<uint8_t> pixels = read_idx(*images_path, {28, 28}, on_problem);
  const std::vector<uint8_t> labels = read_idx(*labels_path, {}, on_problem);
  const size_t count = pixels.size() / kMnistImageBytes;
  if (count != labels.size())
    on_problem(fmt::format("{}: {} images, but {} has {} labels. Download the files again.",
                           images_path->string(), count, labels_path->string(), labels.size()));
  for (size_t image = 0; image < std::min(count, labels.size()); ++image) {
    if (labels[image] >= kMnistClasses) {
      on_problem(fmt::format("{}: label {} of image {}, expected 0..{}. Download the file again.",
                             labels_path->string(), labels[image], image, kMnistClasses - 1));
      continue;
    }
    images.labels.push_back(labels[image]);
    const auto first = pixels.begin() + static_cast<std::ptrdiff_t>(image * kMnistImageBytes);
    images.pixels.insert(images.pixels.end(), first, first + kMnistImageBytes);
  }
  return images;
}

const Normalization& MnistSpec::normalization() {
  static const Normalization normalization{.mean = {0.1307}, .stddev = {0.3081}};
  return normalization;
}

const Normalization& FashionMnistSpec::normalization() {
  static const Normalization normalization{.mean = {0.2860}, .stddev = {0.3530}};
  return normalization;
}

namespace {

MissingData missing_files(std::string_view name) {
  return {
      .files =
          "the IDX files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz "
          "and t10k-labels-idx1-ubyte.gz, packed or not",
      .command = fmt::format("scripts/fetch_data {}", name),
      .other_data = std::string(kExampleImagesText),
      .other_commands = other_small_images() + " --set model.image_size=32 --set model.image_channels=3"};
}

}  // namespace

std::vector<std::string> MnistSpec::class_names(const DataSpec&) const {
  return digit_names();
}

std::vector<std::string> FashionMnistSpec::class_names(const DataSpec&) const {
  return {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
          "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
}

MissingData MnistSpec::missing() const {
  return missing_files(names[0]);
}

MissingData FashionMnistSpec::missing() const {
  return missing_files(names[0]);
}

ImageArray read_set(const MnistSpec&, const DataSpec& data, Split split, const OnProblem& on_problem) {
  return read_mnist(data.path, split, on_problem);
}

ImageArray read_set(const FashionMnistSpec&, const DataSpec& data, Split split, const OnProblem& on_problem) {
  return read_mnist(data.path, split, on_problem);
}

}  // namespace sdp
