#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>

#include "data/sets/cifar.h"
#include "data/sets/image_array.h"
#include "data/sets/mnist.h"
#include "data/sets/svhn.h"
#include "fixtures.h"
#include "formats.h"
#include "mat_file.h"
#include "oracle.h"
#include "tar_repair.h"

namespace sdp::fuzz {

namespace {

namespace fs = std::filesystem;
using namespace sdp::testing;

void look_at(const ImageArray& images) {
  require(images.pixels.size() == images.labels.size() * static_cast<size_t>(images.shape.numel()),
          "pixels and labels of a different number of images");
  require(std::all_of(images.labels.begin(), images.labels.end(),
                      [&](uint8_t label) { return label < images.num_classes; }),
          "a label outside the classes");
  use(std::as_bytes(std::span(images.pixels)));
}

template <auto read_split>
void read_images(const fs::path& file) {
  read_with_and_without_problems(
      [&](const OnProblem& on_problem) { return read_split(file.parent_path(), Split::kTest, on_problem); },
      look_at);
}

// ---- CIFAR ----

std::vector<std::string> cifar10_seeds() {
  return {'\3' + pixels_of(1), '\0' + pixels_of(2) + '\x09' + pixels_of(3)};
}

std::vector<std::string> cifar100_seeds() {
  return {"\x13\x63" + pixels_of(1), "\x01\x02" + pixels_of(2) + "\x03\x04" + pixels_of(3)};
}

// ---- SVHN ----

std::string svhn_x(int images) {
  std::string pixels;
  for (int image = 0; image < images; ++image)
    pixels += pixels_of(image);
  return mat_variable("X", {32, 32, 3, images}, pixels);
}

std::vector<std::string> svhn_seeds() {
  const std::string y = mat_variable("y", {2, 1}, "\x0a\x01");
  const std::string long_y = mat_variable("y", {9, 1}, "\1\2\3\4\5\6\7\x08\x09");
  return {mat_header() + svhn_x(2) + y, mat_header() + mat_compressed(svhn_x(2)) + mat_compressed(y),
          mat_header() + mat_compressed(long_y) + mat_compressed(svhn_x(9)),
          mat_header() + mat_compressed(mat_variable("X", {32, 32, 3}, pixels_of(4))) +
              mat_variable("y", {1, 1}, "\1")};
}

/// Compresses the variables of a file again, of which only the tags have to be intact.
std::string compress_variables(std::string bytes) {
  if (bytes.size() < 136) return bytes;
  // The beginning of the second variable of the first seed, which is not compressed.
  const size_t second = 128 + svhn_x(2).size();
  if (bytes.size() < second) return bytes.substr(0, 128) + mat_compressed(bytes.substr(128));
  return bytes.substr(0, 128) + mat_compressed(bytes.substr(128, second - 128)) +
         mat_compressed(bytes.substr(second));
}

std::vector<std::string> svhn_plain_seeds() {
  return {svhn_seeds().front()};
}

void read_svhn_test(const fs::path& file) {
  read_with_and_without_problems(
      [&](const OnProblem& on_problem) {
        return read_svhn(file.parent_path(), Split::kTest, false, on_problem);
      },
      look_at);
}

// ---- MNIST ----

std::vector<std::string> mnist_seeds() {
  return {std::string("\0\0\x08\x03\0\0\0\2\0\0\0\x1c\0\0\0\x1c", 16) + pixels_of(1, 784) +
          pixels_of(2, 784)};
}

void read_mnist_test(const fs::path& file) {
  std::ofstream(file.parent_path() / "t10k-labels-idx1-ubyte", std::ios::binary)
      << std::string("\0\0\x08\1\0\0\0\2\3\x09", 10);
  read_images<read_mnist>(file);
}

// ---- CIFAR-10 as tar shards ----

std::vector<std::string> tar_seeds() {
  const std::string jpeg = flat_jpeg(32, 32, {200, 100, 50});
  const std::string gray = flat_jpeg(32, 32, {77});
  return {TarWriter().add("a.jpg", jpeg).add("a.cls", "7\n").add("b.cls", "0").add("b.jpg", gray).finish(),
          TarWriter().add("dir/", "", '5').add("3/a.jpg", gray).add("9/b.jpeg", jpeg).finish(),
          TarWriter()
              .add("PaxHeader", "19 path=5/long.jpg\n", 'x')
              .add("short", jpeg)
              .add("././@LongLink", std::string("4/") + std::string(120, 'n') + ".jpg", 'L')
              .add("cut", gray)
              .finish()};
}

// Offsets in the header of the first seed, most of which the other seeds share.
constexpr std::array<size_t, 2> kCifarFields = {0, 1};  // labels
constexpr std::array<size_t, 4> kMnistFields = {0, 4, 8, 12};
constexpr std::array<size_t, 9> kMatFields = {124, 126, 128, 132, 136, 140, 144, 160, 192};  // tags, sizes

}  // namespace

std::vector<Format> array_formats() {
  return {
      {"cifar10", "test_batch.bin", {16, kCifarFields}, cifar10_seeds, read_images<read_cifar10>},
      {"cifar100", "test.bin", {16, kCifarFields}, cifar100_seeds, read_images<read_cifar100>},
      {"cifar10_shard",
       "test-000000.tar",
       {512, kTarFields},
       tar_seeds,
       read_images<read_cifar10>,
       repair_tar},
      {"svhn", "test_32x32.mat", {200, kMatFields}, svhn_seeds, read_svhn_test},
      {"mnist", "t10k-images-idx3-ubyte", {16, kMnistFields}, mnist_seeds, read_mnist_test},
      {"svhn_inflated",
       "test_32x32.mat",
       {200, kMatFields},
       svhn_plain_seeds,
       read_svhn_test,
       compress_variables},
  };
}

}  // namespace sdp::fuzz
