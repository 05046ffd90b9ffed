#include "formats.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "checkpoint/safetensors.h"
#include "data/cifar.h"
#include "data/jpeg.h"
#include "data/svhn.h"
#include "data/tokens.h"
#include "fixtures.h"
#include "io/file.h"
#include "mat_file.h"
#include "spec/error.h"

namespace sdp::fuzz {

namespace {

namespace fs = std::filesystem;
using namespace sdp::testing;

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Keeps the compiler from leaving out the reads, which are the point.
void use(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes)
    sum += std::to_integer<unsigned>(byte);
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum;
}

/// A smooth image, so that formats that compress have something to do.
std::string pixels_of(int image, size_t bytes = 3072) {
  std::string pixels;
  for (size_t at = 0; at < bytes; ++at)
    pixels += static_cast<char>(static_cast<size_t>(image) * 37 + at / 32 + at % 32);
  return pixels;
}

// ---- images in memory ----

/// `read(on_problem)`: where the first problem ends the reading, it is the first of all problems.
template <class Read>
void check_images(const Read& read) {
  std::vector<std::string> problems;
  const ImageArray images = read(collect_into(problems));
  require(images.pixels.size() == images.labels.size() * static_cast<size_t>(images.shape.numel()),
          "pixels and labels of a different number of images");
  require(std::all_of(images.labels.begin(), images.labels.end(),
                      [&](uint8_t label) { return label < images.num_classes; }),
          "a label outside the classes");
  use(std::as_bytes(std::span(images.pixels)));

  const std::string first = message_of<DataError>([&] { read(throw_problem); });
  require(first == (problems.empty() ? "" : problems.front()),
          "the first problem depends on what is done with it");
  if (!first.empty()) throw DataError(first);
}

template <auto read_split>
void read_images(const fs::path& file) {
  check_images(
      [&](const OnProblem& on_problem) { return read_split(file.parent_path(), Split::kTest, on_problem); });
}

std::vector<std::string> cifar10_seeds() {
  return {'\3' + pixels_of(1), '\0' + pixels_of(2) + '\x09' + pixels_of(3)};
}

std::vector<std::string> cifar100_seeds() {
  return {"\x13\x63" + pixels_of(1), "\x01\x02" + pixels_of(2) + "\x03\x04" + pixels_of(3)};
}

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

/// Compresses the variables of a file anew, of which only the tags have to be whole.
std::string compress_variables(std::string bytes) {
  if (bytes.size() < 136) return bytes;
  // Where the second variable of the first seed, which is not compressed, begins.
  const size_t second = 128 + svhn_x(2).size();
  if (bytes.size() < second) return bytes.substr(0, 128) + mat_compressed(bytes.substr(128));
  return bytes.substr(0, 128) + mat_compressed(bytes.substr(128, second - 128)) +
         mat_compressed(bytes.substr(second));
}

std::vector<std::string> svhn_plain_seeds() {
  return {svhn_seeds().front()};
}

void read_svhn_test(const fs::path& file) {
  check_images([&](const OnProblem& on_problem) {
    return read_svhn(file.parent_path(), Split::kTest, false, on_problem);
  });
}

// ---- tar shards of JPEG ----

std::string smooth_jpeg() {
  return flat_jpeg(32, 32, {200, 100, 50});
}

std::vector<std::string> tar_seeds() {
  const std::string jpeg = smooth_jpeg();
  const std::string grey = flat_jpeg(32, 32, {77});
  return {TarWriter().add("a.jpg", jpeg).add("a.cls", "7\n").add("b.cls", "0").add("b.jpg", grey).finish(),
          TarWriter().add("dir/", "", '5').add("3/a.jpg", grey).add("9/b.jpeg", jpeg).finish(),
          TarWriter()
              .add("PaxHeader", "19 path=5/long.jpg\n", 'x')
              .add("short", jpeg)
              .add("././@LongLink", std::string("4/") + std::string(120, 'n') + ".jpg", 'L')
              .add("cut", grey)
              .finish()};
}

/// Right checksums in whatever is at the place of a header.
std::string repair_tar(std::string bytes) {
  for (size_t block = 0; block + 512 <= bytes.size(); block += 512) {
    if (bytes.compare(block + 257, 5, "ustar") != 0) continue;
    unsigned sum = 0;
    for (size_t at = 0; at < 512; ++at)
      sum += at >= 148 && at < 156 ? ' ' : static_cast<unsigned char>(bytes[block + at]);
    char octal[8];
    std::snprintf(octal, sizeof octal, "%06o", sum);
    bytes.replace(block + 148, 8, std::string(octal, 6) + '\0' + ' ');
  }
  return bytes;
}

std::vector<std::string> jpeg_seeds() {
  return {smooth_jpeg(), flat_jpeg(32, 32, {77}), flat_jpeg(32, 32, {0, 255, 3})};
}

void read_jpeg(const fs::path& file) {
  const std::string bytes = read_text(file);
  const std::vector<uint8_t> chw =
      decode_jpeg({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, 32, 32);
  require(chw.size() == 3072, "an image of another size");
  use(std::as_bytes(std::span(chw)));
}

// ---- tokens ----

std::vector<std::string> token_seeds() {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < 100; ++i)
    tokens.push_back(static_cast<uint16_t>(i * 502));
  return {token_shard(tokens), token_shard({1, 2, 3, 4, 5, 6, 7, 8, 9})};
}

void read_tokens(const fs::path& file) {
  const TokenDataset dataset(file.parent_path(), Split::kTest, 8);
  std::vector<int64_t> tokens(9);
  for (int64_t index = 0; index < dataset.size(); ++index) {
    dataset.read(index, tokens);
    require(
        std::all_of(tokens.begin(), tokens.end(), [](int64_t token) { return token >= 0 && token < 65536; }),
        "a token of more than 16 bits");
  }
  ModelSpec model;
  model.vocab_size = 50257;
  dataset.check_fits(model);
}

// ---- safetensors ----

std::string safetensors(const std::string& header, size_t data_bytes) {
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte)
    bytes += static_cast<char>(header.size() >> (8 * byte));
  return bytes + header + pixels_of(0, data_bytes);
}

/// The header's length, where it ends with the last brace.
std::string repair_safetensors(std::string bytes) {
  const size_t end = bytes.rfind('}');
  if (end == std::string::npos || end < 8) return bytes;
  for (size_t byte = 0; byte < 8; ++byte)
    bytes[byte] = static_cast<char>((end + 1 - 8) >> (8 * byte));
  return bytes;
}

std::vector<std::string> safetensors_seeds() {
  return {safetensors(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
          safetensors(R"({"__metadata__":{"format":"pt","step":"12"},)"
                      R"("b.weight":{"dtype":"BF16","shape":[1,2,2],"data_offsets":[16,24]},)"
                      R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                      R"("t":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
                      R"("m":{"dtype":"BOOL","shape":[0,7],"data_offsets":[24,24]}}  )",
                      24)};
}

void read_safetensors(const fs::path& path) {
  const SafetensorsFile file(path);
  for (const TensorView& tensor : file.entries()) {
    require(static_cast<int64_t>(tensor.data.size()) == tensor.entry.bytes(),
            "data of another size than the shape");
    require(file.find(tensor.entry.name) == &tensor, "a tensor that is not found by its name");
    use(tensor.data);
  }
}

// Offsets in the first seed's header, of which the other seeds share most.
constexpr std::array<size_t, 2> kCifarFields = {0, 1};                                       // labels
constexpr std::array<size_t, 9> kMatFields = {124, 126, 128, 132, 136, 140, 144, 160, 192};  // tags, sizes
constexpr std::array<size_t, 4> kTarFields = {0, 124, 124, 156};  // name, size, type
constexpr std::array<size_t, 3> kTokenFields = {0, 4, 8};
constexpr std::array<size_t, 1> kSafetensorsFields = {0};

constexpr std::array kFormats = {
    Format{"cifar10", "test_batch.bin", {16, kCifarFields}, cifar10_seeds, read_images<read_cifar10>},
    Format{"cifar100", "test.bin", {16, kCifarFields}, cifar100_seeds, read_images<read_cifar100>},
    Format{"svhn", "test_32x32.mat", {200, kMatFields}, svhn_seeds, read_svhn_test},
    Format{"svhn_inflated",
           "test_32x32.mat",
           {200, kMatFields},
           svhn_plain_seeds,
           read_svhn_test,
           compress_variables},
    Format{
        "tar_shard", "test-000000.tar", {512, kTarFields}, tar_seeds, read_images<read_cifar10>, repair_tar},
    Format{"jpeg", "image.jpg", {700, {}}, jpeg_seeds, read_jpeg},
    Format{"tokens", "val.bin", {16, kTokenFields}, token_seeds, read_tokens},
    Format{"safetensors",
           "model.safetensors",
           {320, kSafetensorsFields},
           safetensors_seeds,
           read_safetensors,
           repair_safetensors},
};
static_assert(kFormats.size() == SDP_FUZZ_FORMATS, "CMakeLists.txt names other formats");

}  // namespace

std::span<const Format> formats() {
  return kFormats;
}

}  // namespace sdp::fuzz
