#include <zlib.h>

#include "catch.h"
#include "data/sets/image_array.h"
#include "data/sets/mnist.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

// Files written by numpy are compared with torchvision's reader by oracle.py.

namespace {

const std::string kImages = "t10k-images-idx3-ubyte";
const std::string kLabels = "t10k-labels-idx1-ubyte";

std::string numbers(const std::vector<uint32_t>& values) {
  std::string bytes;
  for (const uint32_t value : values)
    for (const int shift : {24, 16, 8, 0})
      bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string labels_file(const std::string& labels) {
  return numbers({2049, static_cast<uint32_t>(labels.size())}) + labels;
}

/// All pixels of an image have its number.
std::string images_file(uint32_t images) {
  std::string bytes = numbers({2051, images, 28, 28});
  for (uint32_t image = 0; image < images; ++image)
    bytes += std::string(784, static_cast<char>(image));
  return bytes;
}

std::string packed(const std::string& bytes) {
  const TempFolder folder;
  const auto path = folder.path() / "x.gz";
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string error_of(const std::string& images, const std::string& labels, const std::string& ending = "") {
  const TempFolder folder;
  folder.write(kImages + ending, images);
  folder.write(kLabels + ending, labels);
  return message_of<DataError>([&] { read_mnist(folder.path(), Split::kTest, throw_problem); });
}

}  // namespace

TEST_CASE("MNIST: one channel, packed or not", "[data]") {
  const TempFolder folder;
  folder.write(kImages + ".gz", packed(images_file(3)));
  folder.write(kLabels, labels_file({7, 0, 9}));
  const ImageArray images = read_mnist(folder.path(), Split::kTest, throw_problem);
  CHECK(images.shape == ImageShape{1, 28, 28});
  CHECK(images.num_classes == 10);
  CHECK(images.labels == std::vector<uint8_t>{7, 0, 9});
  REQUIRE(images.pixels.size() == 3 * 784);
  CHECK(images.pixels[783] == 0);
  CHECK(images.pixels[784] == 1);
}

TEST_CASE("MNIST: the model must have as many channels, and normalization a value for each", "[data]") {
  const TempFolder folder;
  folder.write(kImages, images_file(2));
  folder.write(kLabels, labels_file({1, 2}));
  const DataSpec spec{.set = FashionMnistSpec(),
                      .path = folder.path().string(),
                      .normalization = {.mean = std::vector{0.25}, .stddev = std::vector{0.5}}};
  const auto open = [&](int64_t channels) {
    return open_dataset(spec, {.kind = MlpSpec{.image_size = 28, .image_channels = channels}}, Split::kTest);
  };
  CHECK_SAYS(message_of<UsageError>([&] { open(3); }), "model.image_channels: 3", "have 1");
  const Batch batch = open(1)->eval_batch(std::vector<int64_t>{1});
  REQUIRE(batch.images.size() == 784);
  CHECK(batch.images[0] == (1 / 255.0F - 0.25F) / 0.5F);
}

TEST_CASE("MNIST: missing, foreign and damaged files are named", "[data]") {
  const TempFolder folder;
  folder.write(kLabels, labels_file({1}));
  CHECK_SAYS(message_of<DataError>([&] { read_mnist(folder.path(), Split::kTest, throw_problem); }),
             "missing " + kImages, ".gz", "Found \"" + kLabels);
  const std::string labels = labels_file({1, 2});
  const std::string images = images_file(2);
  REQUIRE(error_of(images, labels).empty());
  CHECK_SAYS(error_of(labels, labels), kImages + ": the header is [2049, 2");
  CHECK_SAYS(error_of(images, images), kLabels + ": the header is [2051, 2], expected magic number 2049");
  CHECK_SAYS(error_of(images_file(3), labels), kImages + ": 3 images", "has 2 labels");
  CHECK_SAYS(error_of(images + "x", labels), kImages + ": 1569 bytes after the header, expected 1568");
  CHECK_SAYS(error_of(images, labels + "x"), kLabels + ": 3 bytes after the header, expected 2");
  for (const size_t size : {size_t{0}, size_t{7}, size_t{16}, size_t{17}, images.size() - 1})
    CHECK_SAYS(error_of(images.substr(0, size), labels), kImages + ": ", "expected");
  // A header that states more than there is takes no memory.
  CHECK_SAYS(error_of(images, numbers({2049, 0xffffffff}) + "\1"),
             kLabels + ": 1 bytes after the header, expected 4294967295");
}

TEST_CASE("MNIST: gzip's checksum detects damage", "[data]") {
  const std::string labels = packed(labels_file({1, 2}));
  const std::string images = packed(images_file(2));
  REQUIRE(error_of(images, labels, ".gz").empty());
  for (size_t size = 1; size < images.size(); ++size) {
    INFO(size);
    CHECK_SAYS(error_of(images.substr(0, size), labels, ".gz"), kImages + ".gz: ");
  }
  std::string flipped = images;
  flipped[flipped.size() - 6] = static_cast<char>(flipped[flipped.size() - 6] ^ 1);  // of the checksum
  CHECK_SAYS(error_of(flipped, labels, ".gz"), kImages + ".gz: cannot be read: ");
}

TEST_CASE("MNIST: all problems are reported, and everything readable is read", "[data]") {
  const TempFolder folder;
  folder.write(kImages, images_file(4).substr(0, 16 + 3 * 784 + 5));
  folder.write(kLabels, labels_file({1, 10, 3, 4}));
  std::vector<std::string> problems;
  const ImageArray images = read_mnist(folder.path(), Split::kTest, collect_into(problems));
  REQUIRE(problems.size() == 3);
  CHECK_SAYS(problems[0], kImages + ": 2357 bytes after the header, expected 3136");
  CHECK_SAYS(problems[1], kImages + ": 3 images", "4 labels");
  CHECK_SAYS(problems[2], kLabels + ": label 10 of image 1");
  CHECK(images.labels == std::vector<uint8_t>{1, 3});
  CHECK(images.pixels.size() == 2 * 784);
}
