#include "data/cifar10.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "data/jpeg.h"
#include "data/tar_shard.h"
#include "spec/error.h"

namespace sdp {

namespace {

namespace fs = std::filesystem;

constexpr ImageShape kShape{.channels = 3, .height = 32, .width = 32};
constexpr int64_t kImageBytes = 3072;
constexpr int64_t kRecordBytes = 1 + kImageBytes;
constexpr int64_t kNumClasses = 10;
constexpr std::string_view kBinaryFolder = "cifar-10-batches-bin";
constexpr std::string_view kPickleFolder = "cifar-10-batches-py";
constexpr std::string_view kExpected =
    "Expected CIFAR-10's binary version (data_batch_1.bin to data_batch_5.bin and test_batch.bin, from "
    "cifar-10-binary.tar.gz) or tar shards of JPEG (train-000000.tar, ..., test-000000.tar, ...).";

struct Images {
  std::vector<uint8_t> pixels;  // [N, 3, 32, 32]
  std::vector<uint8_t> labels;  // [N]
};

class Cifar10 final : public ImageDataset {
 public:
  explicit Cifar10(Images images) : images_(std::move(images)) {}

  int64_t size() const override { return static_cast<int64_t>(images_.labels.size()); }
  ImageShape shape() const override { return kShape; }
  int64_t num_classes() const override { return kNumClasses; }
  int64_t label(int64_t index) const override { return images_.labels[checked(index)]; }
  void read(int64_t index, std::span<uint8_t> chw) const override {
    if (chw.size() != kImageBytes) throw std::logic_error("Cifar10::read: the span does not fit an image");
    std::copy_n(images_.pixels.data() + checked(index) * kImageBytes, kImageBytes, chw.data());
  }
  const Normalization& normalization() const override { return normalization_; }

 private:
  size_t checked(int64_t index) const {
    if (index < 0 || index >= size()) throw std::logic_error("Cifar10: no image " + std::to_string(index));
    return static_cast<size_t>(index);
  }

  Images images_;
  // Over the pixels of the training set.
  Normalization normalization_{.mean = {0.4914F, 0.4822F, 0.4465F}, .stddev = {0.2470F, 0.2435F, 0.2616F}};
};

// ---- what the folder holds ----

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) throw DataError("data.path: " + folder.string() + " can't be listed: " + error.message() + ".");
  std::sort(names.begin(), names.end());
  return names;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string enumerate(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  if (names.empty()) return "nothing";
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += (i ? ", " : "") + names[i];
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

std::vector<std::string> batch_names(Split split) {
  if (split == Split::kTest) return {"test_batch.bin"};
  std::vector<std::string> names;
  for (int batch = 1; batch <= 5; ++batch)
    names.push_back("data_batch_" + std::to_string(batch) + ".bin");
  return names;
}

bool has_batches(const std::vector<std::string>& names) {
  return contains(names, batch_names(Split::kTest).front()) ||
         std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return contains(batch_names(Split::kTrain), name); });
}

std::string shard_prefix(Split split) {
  return split == Split::kTrain ? "train-" : "test-";
}

std::vector<std::string> shard_names(const std::vector<std::string>& names, Split split) {
  std::vector<std::string> shards;
  std::copy_if(names.begin(), names.end(), std::back_inserter(shards), [&](const std::string& name) {
    return name.starts_with(shard_prefix(split)) && name.ends_with(".tar");
  });
  return shards;
}

// ---- binary version ----

void append_batch(const fs::path& path, Images& images) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size_bytes = static_cast<int64_t>(file.tellg());
  if (!file || size_bytes < 0) throw DataError(path.string() + ": can't be read.");
  if (size_bytes == 0) throw DataError(path.string() + ": the file is empty. Unpack or copy it again.");
  if (const int64_t rest = size_bytes % kRecordBytes; rest != 0)
    throw DataError(
        path.string() + ": " + std::to_string(size_bytes) +
        " bytes are no multiple of 3073 (1 label byte + 3072 pixel bytes): the record at offset " +
        std::to_string(size_bytes - rest) + " ends after " + std::to_string(rest) +
        " bytes. Unpack or copy the file again.");

  file.seekg(0);
  std::array<uint8_t, kRecordBytes> record;
  for (int64_t offset = 0; offset < size_bytes; offset += kRecordBytes) {
    if (!file.read(reinterpret_cast<char*>(record.data()), kRecordBytes))
      throw DataError(path.string() + ": can't be read at offset " + std::to_string(offset) + ".");
    if (record[0] >= kNumClasses)
      throw DataError(path.string() + ": label " + std::to_string(record[0]) + " at offset " +
                      std::to_string(offset) + ", expected 0..9. This is not CIFAR-10's binary version.");
    images.labels.push_back(record[0]);
    images.pixels.insert(images.pixels.end(), record.begin() + 1, record.end());
  }
}

Images read_batches(const fs::path& folder, Split split) {
  const std::vector<std::string> found = names_in(folder);
  std::vector<std::string> missing;
  for (const std::string& name : batch_names(split))
    if (!contains(found, name)) missing.push_back(name);
  if (!missing.empty())
    throw DataError(folder.string() + ": missing " + enumerate(missing) + ". Found " + enumerate(found) +
                    ". " + std::string(kExpected));

  Images images;
  for (const std::string& name : batch_names(split))
    append_batch(folder / name, images);
  return images;
}

// ---- tar shards ----

int64_t shard_number(const fs::path& shard, const std::string& prefix) {
  const std::string stem = shard.stem().string();
  int64_t number = -1;
  const auto [end, error] = std::from_chars(stem.data() + prefix.size(), stem.data() + stem.size(), number);
  if (error != std::errc() || end != stem.data() + stem.size() || number < 0)
    throw DataError(shard.string() + ": shards are named " + prefix + "NNNNNN.tar, with a number.");
  return number;
}

/// The shards of a split by number, after checking that numbers are 0, 1, 2, ...
std::vector<fs::path> ordered_shards(const fs::path& folder, const std::vector<std::string>& found,
                                     Split split) {
  const std::string prefix = shard_prefix(split);
  std::vector<std::pair<int64_t, fs::path>> shards;
  for (const std::string& name : shard_names(found, split))
    shards.emplace_back(shard_number(folder / name, prefix), folder / name);
  if (shards.empty())
    throw DataError(folder.string() + ": no " + prefix + "NNNNNN.tar. Found " + enumerate(found) + ". " +
                    std::string(kExpected));

  std::sort(shards.begin(), shards.end());
  std::vector<fs::path> paths;
  for (const auto& [number, path] : shards) {
    if (number != static_cast<int64_t>(paths.size()))
      throw DataError(path.string() + ": expected shard " + std::to_string(paths.size()) +
                      " in its place. Shards are numbered 0, 1, 2, ..., none missing and none twice.");
    paths.push_back(path);
  }
  return paths;
}

Images read_shards(const fs::path& folder, const std::vector<std::string>& found, Split split) {
  Images images;
  for (const fs::path& shard : ordered_shards(folder, found, split)) {
    for (const LabelledJpeg& sample : read_jpeg_shard(shard, kNumClasses)) {
      try {
        const std::vector<uint8_t> chw = decode_jpeg(sample.jpeg.data, kShape.height, kShape.width);
        images.pixels.insert(images.pixels.end(), chw.begin(), chw.end());
      } catch (const DataError& error) {
        throw DataError(place_of(shard, sample.jpeg) + ": " + error.what() + ".");
      }
      images.labels.push_back(static_cast<uint8_t>(sample.label));
    }
  }
  return images;
}

}  // namespace

std::unique_ptr<ImageDataset> open_cifar10(const fs::path& folder, Split split) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw DataError("data.path: " + folder.string() + " is not a folder. " + std::string(kExpected));

  const std::vector<std::string> found = names_in(folder);
  const bool binary_here = has_batches(found);
  const bool binary = binary_here || fs::is_directory(folder / kBinaryFolder, error);
  const bool shards = !shard_names(found, Split::kTrain).empty() || !shard_names(found, Split::kTest).empty();
  if (binary && shards)
    throw DataError(
        "data.path: " + folder.string() +
        " holds both CIFAR-10's binary version and tar shards, so it is unclear which to read. Found " +
        enumerate(found) + ". Move one of them to another folder.");
  if (binary)
    return std::make_unique<Cifar10>(read_batches(binary_here ? folder : folder / kBinaryFolder, split));
  if (shards) return std::make_unique<Cifar10>(read_shards(folder, found, split));
  if (contains(found, "data_batch_1") || contains(found, kPickleFolder))
    throw DataError("data.path: " + folder.string() +
                    " holds CIFAR-10's version for Python (pickles). Found " + enumerate(found) + ". " +
                    std::string(kExpected));
  throw DataError("data.path: " + folder.string() + " holds no CIFAR-10. Found " + enumerate(found) + ". " +
                  std::string(kExpected));
}

}  // namespace sdp
