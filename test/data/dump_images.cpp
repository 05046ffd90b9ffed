// Writes the pixels and boxes that lib/data computes for images to stdout, for oracle_images.py:
//   dump_images decode FILE
//       height, width (int64), pixels [height, width, 3]
//   dump_images boxes WIDTH HEIGHT SEED COUNT
//       per position 0..COUNT-1: left, top, right, bottom (int64) of the random resized crop
//   dump_images imagenet FOLDER train|test IMAGE_SIZE EVAL_RESIZE SCALED_DECODING SEED
//       per image: label (int64), pixels [3, IMAGE_SIZE, IMAGE_SIZE]; in training those of position 1000 +
//       index
#include <array>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/formats/crops.h"
#include "data/formats/image.h"
#include "data/sets/imagenet.h"
#include "io/file.h"
#include "spec/error.h"

namespace {

template <class T>
void put(std::span<const T> values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

void put_numbers(const std::vector<int64_t>& values) {
  put<int64_t>(values);
}

void dump_decoded(const std::string& path) {
  const std::vector<uint8_t> file = sdp::read_bytes(path);
  const std::unique_ptr<sdp::EncodedImage> image = sdp::open_image(file);
  const sdp::Pixels pixels = image->decode_all();
  put_numbers({image->height(), image->width()});
  for (int64_t y = 0; y < pixels.height(); ++y)
    for (int64_t x = 0; x < pixels.width(); ++x)
      put<uint8_t>({pixels.row(y) + x * sdp::kPixelBytes, 3});
}

void dump_boxes(int64_t width, int64_t height, uint64_t seed, int64_t count) {
  for (int64_t position = 0; position < count; ++position) {
    const sdp::Box box = sdp::random_resized_crop(width, height, seed, position);
    put_numbers({box.left, box.top, box.right, box.bottom});
  }
}

void dump_imagenet(const sdp::ImageNet& dataset, bool train, uint64_t seed) {
  constexpr std::array kSteps = {sdp::Augmentation::kResizedCrop};
  std::vector<uint8_t> chw(static_cast<size_t>(dataset.shape().numel()));
  for (int64_t index = 0; index < dataset.size(); ++index) {
    if (train)
      dataset.read_for_training(index, kSteps, seed, 1000 + index, chw);
    else
      dataset.read(index, chw);
    put_numbers({dataset.label(index)});
    put<uint8_t>(chw);
  }
}

std::unique_ptr<sdp::ImageNet> open(const std::vector<std::string>& arguments, bool train) {
  // With shards, the number of classes is the number of their labels; otherwise, the number of folders.
  const sdp::ModelSpec model{
      .kind = sdp::ResNetSpec{.num_classes = 1000, .image_size = std::stoll(arguments[3])}};
  const sdp::DataSpec spec{.set = sdp::ImageNetSpec{.index_dir = std::filesystem::temp_directory_path() /
                                                                 "sdp-no-index",  // does not exist
                                                    .eval_resize = std::stoll(arguments[4]),
                                                    .scaled_decoding = arguments[5] == "1"},
                           .path = arguments[1]};
  return sdp::open_imagenet(spec, model, train ? sdp::Split::kTrain : sdp::Split::kTest);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string what = arguments.empty() ? "" : arguments[0];
  try {
    if (what == "decode" && arguments.size() == 2) {
      dump_decoded(arguments[1]);
    } else if (what == "boxes" && arguments.size() == 5) {
      dump_boxes(std::stoll(arguments[1]), std::stoll(arguments[2]), std::stoull(arguments[3]),
                 std::stoll(arguments[4]));
    } else if (what == "imagenet" && arguments.size() == 7) {
      const bool train = arguments[2] == "train";
      dump_imagenet(*open(arguments, train), train, std::stoull(arguments[6]));
    } else {
      return static_cast<int>(sdp::ExitCode::kUsage);
    }
  } catch (const sdp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
