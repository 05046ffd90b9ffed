#include "data/sets/cifar.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/attempt.h"
#include "data/sets/cifar10_shards.h"
#include "data/sets/folder.h"
#include "data/sets/image_array.h"
#include "io/file.h"
#include "spec/text.h"

namespace sdp {

namespace {

namespace fs = std::filesystem;

constexpr ImageShape kShape{.channels = 3, .height = 32, .width = 32};
constexpr int64_t kImageBytes = 3072;

struct LabelByte {
  std::string_view name;
  int64_t num_classes;
};

/// How the binary version of one data set differs from that of the other.
struct BinaryVersion {
  std::string_view dataset;
  std::string_view folder;  // folder in the archive
  std::vector<std::string> train;
  std::vector<std::string> test;
  std::vector<LabelByte> labels;  // before the pixels; the last one is the image's
  std::string_view archive;
  std::string_view python_archive;  // of the version for Python, with the names of its contents
  std::string_view python_folder;
  std::string_view python_file;
  std::string_view expected;

  const std::vector<std::string>& files(Split split) const { return split == Split::kTrain ? train : test; }
  int64_t record_bytes() const { return static_cast<int64_t>(labels.size()) + kImageBytes; }
};

const BinaryVersion& cifar10_version() {
  static const BinaryVersion version = {
      .dataset = "CIFAR-10",
      .folder = "cifar-10-batches-bin",
      .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                "data_batch_5.bin"},
      .test = {"test_batch.bin"},
      .labels = {{.name = "label", .num_classes = 10}},
      .archive = "cifar-10-binary.tar.gz",
      .python_archive = "cifar-10-python.tar.gz",
      .python_folder = "cifar-10-batches-py",
      .python_file = "data_batch_1",
      .expected =
          "Expected CIFAR-10's binary version (data_batch_1.bin to data_batch_5.bin and test_batch.bin, from "
          "cifar-10-binary.tar.gz) or tar shards of JPEG (train-000000.tar, ..., test-000000.tar, ...)."};
  return version;
}

const BinaryVersion& cifar100_version() {
  static const BinaryVersion version = {
      .dataset = "CIFAR-100",
      .folder = "cifar-100-binary",
      .train = {"train.bin"},
      .test = {"test.bin"},
      .labels = {{.name = "coarse label", .num_classes = 20}, {.name = "fine label", .num_classes = 100}},
      .archive = "cifar-100-binary.tar.gz",
      .python_archive = "cifar-100-python.tar.gz",
      .python_folder = "cifar-100-python",
      .python_file = "meta",
      .expected =
          "Expected CIFAR-100's binary version (train.bin and test.bin, from cifar-100-binary.tar.gz)."};
  return version;
}

/// The folder that contains files of the binary version, of any split; std::nullopt if there is none.
std::optional<fs::path> binary_folder(const BinaryVersion& version, const fs::path& folder,
                                      const std::vector<std::string>& found) {
  for (const Split split : {Split::kTrain, Split::kTest})
    for (const std::string& name : version.files(split))
      if (contains(found, name)) return folder;
  std::error_code error;
  if (fs::is_directory(folder / version.folder, error)) return folder / version.folder;
  return std::nullopt;
}

/// Error message for a folder without readable files.
std::string nothing_readable(const BinaryVersion& version, const fs::path& folder,
                             const std::vector<std::string>& found) {
  if (contains(found, version.python_file) || contains(found, version.python_folder) ||
      contains(found, version.python_archive))
    return fmt::format("data.path: {} holds {}'s version for Python (pickles). Found {}. {}", folder.string(),
                       version.dataset, enumerate(found), version.expected);
  if (contains(found, version.archive))
    return fmt::format("data.path: {} holds {} as it was downloaded. Unpack it: tar -xzf {} -C {}",
                       folder.string(), version.archive, shell_word((folder / version.archive).string()),
                       shell_word(folder.string()));
  return fmt::format("data.path: {} holds no {}. Found {}. {}", folder.string(), version.dataset,
                     enumerate(found), version.expected);
}

/// Whether the labels of the record at `offset` are in range.
bool check_labels(const BinaryVersion& version, const fs::path& path, int64_t offset,
                  std::span<const uint8_t> record, const OnProblem& on_problem) {
  for (size_t i = 0; i < version.labels.size(); ++i) {
    const auto [name, num_classes] = version.labels[i];
    if (record[i] < num_classes) continue;
    on_problem(fmt::format("{}: {} {} at offset {}, expected 0..{}. This is not {}'s binary version.",
                           path.string(), name, record[i], offset + static_cast<int64_t>(i), num_classes - 1,
                           version.dataset));
    return false;
  }
  return true;
}

void append_records(const BinaryVersion& version, const fs::path& path, const OnProblem& on_problem,
                    ImageArray& images) {
  const auto file = attempt(on_problem, [&] { return MappedFile(path); });
  if (!file) return;
  const std::span bytes(reinterpret_cast<const uint8_t*>(file->bytes().data()), file->bytes().size());
  const auto size_bytes = static_cast<int64_t>(bytes.size());
  const int64_t record_bytes = version.record_bytes();
  if (size_bytes == 0)
    on_problem(fmt::format("{}: the file is empty. Unpack or copy it again.", path.string()));
  if (const int64_t rest = size_bytes % record_bytes; rest != 0)
    on_problem(fmt::format(
        "{}: {} bytes are no multiple of {} ({} label byte{} + {} pixel bytes): the record at offset {} ends "
        "after {} bytes. Unpack or copy the file again.",
        path.string(), size_bytes, record_bytes, version.labels.size(), version.labels.size() == 1 ? "" : "s",
        kImageBytes, size_bytes - rest, rest));

  const int64_t records = size_bytes / record_bytes;
  images.pixels.reserve(images.pixels.size() + static_cast<size_t>(records * kImageBytes));
  for (int64_t offset = 0; offset < records * record_bytes; offset += record_bytes) {
    const auto record = bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(record_bytes));
    if (!check_labels(version, path, offset, record, on_problem)) continue;
    const auto pixels = record.subspan(version.labels.size());
    images.labels.push_back(record[version.labels.size() - 1]);
    images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
  }
}

void append_binary(const BinaryVersion& version, const fs::path& folder, Split split,
                   const OnProblem& on_problem, ImageArray& images) {
  const auto found = attempt(on_problem, [&] { return names_in(folder); });
  if (!found) return;
  std::vector<std::string> missing;
  std::copy_if(version.files(split).begin(), version.files(split).end(), std::back_inserter(missing),
               [&](const std::string& name) { return !contains(*found, name); });
  if (!missing.empty())
    on_problem(fmt::format("{}: missing {}. Found {}. {}", folder.string(), enumerate(missing),
                           enumerate(*found), version.expected));
  for (const std::string& name : version.files(split))
    if (!contains(missing, name)) append_records(version, folder / name, on_problem, images);
}

}  // namespace

ImageArray read_cifar10(const fs::path& folder, Split split, const OnProblem& on_problem) {
  const BinaryVersion& version = cifar10_version();
  ImageArray images{.shape = kShape, .num_classes = 10};
  const auto found = attempt(on_problem, [&] { return names_in(folder); });
  if (!found) return images;
  const std::optional<fs::path> binary = binary_folder(version, folder, *found);
  const bool shards = has_shards(*found);
  if (binary && shards)
    on_problem(fmt::format(
        "data.path: {} holds both CIFAR-10's binary version and tar shards, so it is unclear which "
        "to read. Found {}. Move one of them to another folder.",
        folder.string(), enumerate(*found)));
  else if (binary)
    append_binary(version, *binary, split, on_problem, images);
  else if (shards)
    append_shards(folder, *found, split, on_problem, images);
  else
    on_problem(nothing_readable(version, folder, *found));
  return images;
}

ImageArray read_cifar100(const fs::path& folder, Split split, const OnProblem& on_problem) {
  const BinaryVersion& version = cifar100_version();
  ImageArray images{.shape = kShape, .num_classes = 100};
  const auto found = attempt(on_problem, [&] { return names_in(folder); });
  if (!found) return images;
  if (const std::optional<fs::path> binary = binary_folder(version, folder, *found))
    append_binary(version, *binary, split, on_problem, images);
  else
    on_problem(nothing_readable(version, folder, *found));
  return images;
}

const Normalization& Cifar10Spec::normalization() {
  static const Normalization normalization{.mean = {0.4914, 0.4822, 0.4465},
                                           .stddev = {0.2470, 0.2435, 0.2616}};
  return normalization;
}

const Normalization& Cifar100Spec::normalization() {
  static const Normalization normalization{.mean = {0.5071, 0.4865, 0.4409},
                                           .stddev = {0.2673, 0.2564, 0.2762}};
  return normalization;
}

std::vector<std::string> Cifar10Spec::class_names(const DataSpec&) const {
  return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
}

std::vector<std::string> Cifar100Spec::class_names(const DataSpec&) const {
  return {"apple",       "aquarium_fish", "baby",      "bear",       "beaver",       "bed",
          "bee",         "beetle",        "bicycle",   "bottle",     "bowl",         "boy",
          "bridge",      "bus",           "butterfly", "camel",      "can",          "castle",
          "caterpillar", "cattle",        "chair",     "chimpanzee", "clock",        "cloud",
          "cockroach",   "couch",         "crab",      "crocodile",  "cup",          "dinosaur",
          "dolphin",     "elephant",      "flatfish",  "forest",     "fox",          "girl",
          "hamster",     "house",         "kangaroo",  "keyboard",   "lamp",         "lawn_mower",
          "leopard",     "lion",          "lizard",    "lobster",    "man",          "maple_tree",
          "motorcycle",  "mountain",      "mouse",     "mushroom",   "oak_tree",     "orange",
          "orchid",      "otter",         "palm_tree", "pear",       "pickup_truck", "pine_tree",
          "plain",       "plate",         "poppy",     "porcupine",  "possum",       "rabbit",
          "raccoon",     "ray",           "road",      "rocket",     "rose",         "sea",
          "seal",        "shark",         "shrew",     "skunk",      "skyscraper",   "snail",
          "snake",       "spider",        "squirrel",  "streetcar",  "sunflower",    "sweet_pepper",
          "table",       "tank",          "telephone", "television", "tiger",        "tractor",
          "train",       "trout",         "tulip",     "turtle",     "wardrobe",     "whale",
          "willow_tree", "wolf",          "woman",     "worm"};
}

MissingData Cifar10Spec::missing() const {
  return {.files = "CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin",
          .command = "scripts/fetch_data cifar10",
          .other_data = std::string(kExampleImagesText),
          .other_commands = fmt::format("  the same command with --set data.path={}", kExampleImages)};
}

MissingData Cifar100Spec::missing() const {
  return {.files = "CIFAR-100's binary version: train.bin and test.bin",
          .command = "scripts/fetch_data cifar100",
          .other_data = std::string(kExampleImagesText),
          .other_commands = other_small_images()};
}

ImageArray read_set(const Cifar10Spec&, const DataSpec& data, Split split, const OnProblem& on_problem) {
  return read_cifar10(data.path, split, on_problem);
}

ImageArray read_set(const Cifar100Spec&, const DataSpec& data, Split split, const OnProblem& on_problem) {
  return read_cifar100(data.path, split, on_problem);
}

}  // namespace sdp
