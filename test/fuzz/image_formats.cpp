#include <arpa/inet.h>
#include <png.h>
#include <webp/encode.h>
#include <xxhash.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "data/crops.h"
#include "data/image_array.h"
#include "data/imagenet.h"
#include "data/random.h"
#include "formats.h"
#include "formats/image.h"
#include "io/file.h"
#include "tar_repair.h"

namespace sdp::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace sdp::testing;

/// A smooth image, so that formats with compression can compress it.
std::string pixels_of(size_t bytes) {
  std::string pixels;
  for (size_t at = 0; at < bytes; ++at)
    pixels += static_cast<char>(at / 32 + at % 32);
  return pixels;
}

std::string smooth_jpeg(int width, int height, int components, JpegOptions options = {}) {
  const std::string pixels = pixels_of(static_cast<size_t>(int64_t{width} * height * components));
  options.quality = 85;
  return encode_jpeg(width, height, {pixels.begin(), pixels.end()}, options);
}

// ---- JPEG, PNG and WebP ----

std::vector<std::string> jpeg_seeds() {
  return {smooth_jpeg(40, 24, 3),
          smooth_jpeg(83, 61, 3, {.across = 2, .down = 2}),
          smooth_jpeg(17, 33, 1),
          smooth_jpeg(64, 48, 3, {.across = 2, .down = 2, .progressive = true}),
          smooth_jpeg(45, 20, 3, {.across = 2}),
          smooth_jpeg(50, 30, 3, {.odd_sampling = true}),
          smooth_jpeg(21, 19, 4),
          smooth_jpeg(30, 31, 4, {.across = 2, .down = 2, .ycck = true}),
          flat_jpeg(32, 32, {200, 100, 50})};
}

/// A box that depends only on the file has the same pixels as the whole image. Both ways to produce the
/// network's input read a whole image. In a damaged one, a part may be intact or refused.
void check_parts(std::span<const uint8_t> file, bool whole, CounterRandom& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.below(static_cast<uint64_t>(n))); };
  const auto image = open_jpeg(file);
  const int eighths = static_cast<int>(1 + below(8));
  const int64_t width = scaled_length(image->width(), eighths),
                height = scaled_length(image->height(), eighths);
  const int64_t left = below(width), top = below(height), size = 1 + below(16);
  const Box box{.left = left,
                .top = top,
                .right = left + 1 + below(width - left),
                .bottom = top + 1 + below(height - top)};
  std::vector<uint8_t> part, chw(static_cast<size_t>(3 * size * size));
  std::string refused = message_of<DataError>([&] { part = decoded(file, box, eighths); });
  refused += message_of<DataError>([&] {
    decode_crop(*image, center_crop(image->width(), image->height(), size + below(9), size), 8, size, chw);
    const Crop crop = crop_of(random_resized_crop(image->width(), image->height(), 1, below(100)));
    decode_crop(*open_jpeg(file), crop, eighths_for(crop, size), size, chw);
  });
  use(std::as_bytes(std::span(part)));
  use(std::as_bytes(std::span(chw)));
  require(!whole || refused.empty(), "a part of a whole image is refused");
  const Box all{.left = 0, .top = 0, .right = width, .bottom = height};
  require(!whole || part == cut_out(decoded(file, all, eighths), width, box),
          "a box has other pixels than the whole image");
}

void read_jpeg(const fs::path& path) {
  const std::vector<uint8_t> file = read_bytes(path);
  const int64_t width = open_jpeg(file)->width();
  const int64_t height = open_jpeg(file)->height();
  const std::string problem = message_of<DataError>([&] { open_jpeg(file)->decode_all(); });
  require(problem == message_of<DataError>([&] { decode_image(file, height, width); }),
          "a check and decoding find something else");
  CounterRandom random(XXH3_64bits(file.data(), file.size()), RandomPurpose::kCrop, 0);
  for (int draw = 0; draw < 3; ++draw)
    check_parts(file, problem.empty(), random);
  if (!problem.empty()) throw DataError(problem);
}

std::string png_of(int width, int height, uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<uint32_t>(width);
  image.height = static_cast<uint32_t>(height);
  image.format = format;
  const std::string pixels = pixels_of(PNG_IMAGE_SIZE(image));
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr);
  return file.substr(0, size);
}

std::vector<std::string> png_seeds() {
  return {png_of(23, 11, PNG_FORMAT_RGB), png_of(9, 30, PNG_FORMAT_GA), png_of(40, 7, PNG_FORMAT_LINEAR_Y)};
}

/// Corrects the checksums of all chunks.
std::string repair_png(std::string bytes) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    uint32_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    length = ntohl(length);
    if (length > bytes.size() - at - 12) break;
    const auto* const chunk = reinterpret_cast<const Bytef*>(bytes.data() + at + 4);
    const uint32_t sum = htonl(static_cast<uint32_t>(crc32(0, chunk, length + 4)));
    std::memcpy(bytes.data() + at + 8 + length, &sum, sizeof sum);
    at += 12 + length;
  }
  return bytes;
}

std::vector<std::string> webp_seeds() {
  const std::string pixels = pixels_of(31 * 17 * 4);
  const auto* const rgba = reinterpret_cast<const uint8_t*>(pixels.data());
  std::vector<std::string> files;
  for (const bool lossless : {false, true}) {
    uint8_t* out = nullptr;
    const size_t size = lossless ? WebPEncodeLosslessRGBA(rgba, 31, 17, 31 * 4, &out)
                                 : WebPEncodeRGBA(rgba, 31, 17, 31 * 4, 80, &out);
    files.emplace_back(reinterpret_cast<const char*>(out), size);
    WebPFree(out);
  }
  return files;
}

void read_image(const fs::path& path) {
  const std::vector<uint8_t> file = read_bytes(path);
  const Pixels pixels = open_image(file)->decode_all();
  for (int64_t y = 0; y < pixels.height(); ++y)
    use(std::as_bytes(std::span(pixels.row(y), static_cast<size_t>(pixels.width() * kPixelBytes))));
}

// ---- shards and arrays ----

constexpr int64_t kClasses = 10;

/// Labels in files, in folders, and under long names.
std::vector<std::string> tar_seeds(const std::string& color, const std::string& gray,
                                   const std::string& other) {
  return {tar_of({{"a.jpg", color}, {"a.cls", "7\n"}, {"b.cls", "0"}, {"b.jpg", gray}}),
          tar_of({{"dir/", "", '5'}, {"3/a.jpg", other}, {"9/b.JPEG", color}}),
          tar_of({{"PaxHeader", "19 path=5/long.jpg\n", 'x'},
                  {"short", gray},
                  {"././@LongLink", std::string("4/") + std::string(120, 'n') + ".jpg", 'L'},
                  {"cut", color}})};
}

std::vector<std::string> flat_shard_seeds() {
  const std::string gray = flat_jpeg(32, 32, {77});
  return tar_seeds(flat_jpeg(32, 32, {200, 100, 50}), gray, gray);
}

std::vector<std::string> imagenet_shard_seeds() {
  return tar_seeds(smooth_jpeg(12, 10, 3, {.across = 2, .down = 2}), smooth_jpeg(9, 30, 1),
                   smooth_jpeg(20, 11, 3, {.progressive = true}));
}

/// Without the byte '}', which repair_safetensors looks for.
std::vector<std::string> array_seeds() {
  const HeldImages& set = MnistSpec::images();
  return {array_file(set, {.pixels = std::string(784, '\1'), .labels = "\x09"}),
          array_file(set, {.pixels = std::string(784, '\2') + std::string(784, '\3'),
                           .labels = std::string("\0\4", 2)})};
}

/// Calls `read(on_problem)` twice: if the first problem ends the reading, it must be the first of all
/// problems. Throws that problem at the end, after `look` has inspected the parts that were read despite
/// problems.
template <class Read, class Look>
void read_with_and_without_problems(const Read& read, const Look& look) {
  std::vector<std::string> problems;
  const std::string last = message_of<Error>([&] { look(read(collect_into(problems))); });
  if (!last.empty()) problems.push_back(last);
  const std::string first = message_of<Error>([&] { read(throw_problem); });
  require(first == (problems.empty() ? "" : problems.front()),
          "the first problem depends on what is done with it");
  if (!first.empty()) throw DataError(first);
}

template <class Set>
void read_images(const fs::path& file) {
  const Set set;
  const DataSpec spec{.set = set, .path = file.parent_path().string()};
  const auto read = [&](const OnProblem& on_problem) {
    return read_set(set, spec, Split::kTest, on_problem);
  };
  read_with_and_without_problems(read, [](const ImageArray& images) {
    require(images.pixels.size() == images.labels.size() * static_cast<size_t>(images.shape.numel()),
            "pixels and labels of a different number of images");
    require(std::ranges::all_of(images.labels, [&](uint8_t label) { return label < images.num_classes; }),
            "a label outside the classes");
    use(std::as_bytes(std::span(images.pixels)));
  });
}

/// An image that passes a check is read in evaluation and training; damage may lie outside the part that they
/// read. The first problem is thrown.
void look_at(const ImageNet& images) {
  const std::vector<Augmentation> steps = {Augmentation::kResizedCrop};
  std::vector<uint8_t> chw(static_cast<size_t>(images.shape().numel()));
  std::vector<std::string> problems;
  for (int64_t index = 0; index < images.size(); ++index) {
    require(images.label(index) >= 0 && images.label(index) < kClasses, "a label outside the classes");
    const bool whole = images.check_image(index, collect_into(problems)).has_value();
    const std::string refused = message_of<DataError>([&] {
      images.read(index, chw);
      use(std::as_bytes(std::span(chw)));
      for (int64_t position = 0; position < 2; ++position)
        images.read_for_training(index, steps, 1, position, chw);
      use(std::as_bytes(std::span(chw)));
    });
    require(!whole || refused.empty(), "an image that a check finds whole is refused");
  }
  if (!problems.empty()) throw DataError(problems.front());
}

void read_imagenet_shard(const fs::path& file) {
  const std::string none = (file.parent_path() / "none").string();  // nothing is saved: see image_index
  const DataSpec spec{
      .set =
          ImageNetSpec{
              .train_files = "shard-?.tar", .test_files = "none-*.tar", .index_dir = none, .eval_resize = 9},
      .path = file.parent_path().string()};
  const ModelSpec model{.kind = ResNetSpec{.num_classes = kClasses, .image_size = 8}};
  const auto open = [&](const OnProblem& on_problem) {
    return open_imagenet(spec, model, Split::kTrain, on_problem);
  };
  std::string damaged;
  read_with_and_without_problems(open, [&](const std::unique_ptr<ImageNet>& images) {
    const std::string problem = message_of<DataError>([&] { look_at(*images); });
    if (damaged.empty()) damaged = problem;
  });
  if (!damaged.empty()) throw DataError(damaged);
}

}  // namespace

std::vector<Format> image_formats() {
  // In the second JPEG, 4:2:0: length, height, width and components of its frame, and their sampling.
  const std::vector<size_t> jpeg_fields = {158, 160, 163, 165, 167, 169, 172};
  const std::vector<size_t> png_fields = {16, 20, 24, 25,
                                          28};              // width, height, depth, color type, interlacing
  const std::vector<size_t> webp_fields = {4, 12, 16, 20};  // sizes, the kind of chunk, the first header
  const std::vector<size_t> tar_fields(kTarFields.begin(), kTarFields.end());
  return {
      {"image_arrays", "val.safetensors", 320, {0}, array_seeds, read_images<MnistSpec>, repair_safetensors},
      {"cifar10_shard", "test-000000.tar", 512, tar_fields, flat_shard_seeds, read_images<Cifar10Spec>,
       repair_tar},
      {"jpeg", "image.jpg", 700, jpeg_fields, jpeg_seeds, read_jpeg},
      {"png", "image.png", 60, png_fields, png_seeds, read_image, repair_png},
      {"webp", "image.webp", 60, webp_fields, webp_seeds, read_image},
      {"imagenet_shard", "shard-0.tar", 512, tar_fields, imagenet_shard_seeds, read_imagenet_shard,
       repair_tar}};
}

}  // namespace sdp::fuzz
