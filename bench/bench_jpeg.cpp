#include <algorithm>
#include <array>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <jpeglib.h>

#include "bench_data.h"
#include "data/augment.h"
#include "data/crops.h"
#include "formats/image.h"
#include "io/file.h"
#include "timer.h"

namespace sdp::bench {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = 224;
constexpr ImageShape kShape{.channels = 3, .height = kSize, .width = kSize};
constexpr std::array kSteps = {Augmentation::kResizedCrop, Augmentation::kFlip};

std::vector<fs::path> jpegs_below(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".JPEG" || extension == ".jpeg" || extension == ".jpg") paths.push_back(entry.path());
  }
  if (paths.empty()) throw std::runtime_error("no JPEG below " + folder.string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Processing of one file in training.
class TrainingPath {
 public:
  explicit TrainingPath(bool scaled) : scaled_(scaled) {}

  void operator()(const fs::path& path) {
    const std::vector<uint8_t> file = read_bytes(path);
    const std::unique_ptr<EncodedImage> image = open_jpeg(file);
    const Crop crop = crop_of(random_resized_crop(image->width(), image->height(), 1, position_));
    decode_crop(*image, crop, scaled_ ? eighths_for(crop, kSize) : 8, kSize, chw_);
    transform_.augment(chw_, kSteps, 1, position_, out_);
    ++position_;
  }

 private:
  bool scaled_;
  int64_t position_ = 0;
  ImageTransform transform_{kShape, {.mean = {0.485F, 0.456F, 0.406F}, .stddev = {0.229F, 0.224F, 0.225F}}};
  std::vector<uint8_t> chw_ = std::vector<uint8_t>(static_cast<size_t>(kShape.numel()));
  std::vector<float> out_ = std::vector<float>(static_cast<size_t>(kShape.numel()));
};

/// Only libjpeg-turbo, as in its example, into one buffer of RGB.
void bare_decode(std::span<const uint8_t> jpeg, std::vector<uint8_t>& rgb) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, jpeg.data(), jpeg.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t stride = size_t{info.output_width} * 3;
  rgb.resize(stride * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = rgb.data() + stride * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

}  // namespace

void bench_jpeg(const fs::path& folder, double seconds) {
  const std::vector<fs::path> paths = jpegs_below(folder);
  const auto count = static_cast<int64_t>(paths.size());
  std::vector<std::vector<uint8_t>> files;
  for (const fs::path& path : paths)
    files.push_back(read_bytes(path));

  for (const bool scaled : {false, true}) {
    TrainingPath train(scaled);
    measure(scaled ? "train, scaled decoding" : "train", count, seconds,
            [&] { std::for_each(paths.begin(), paths.end(), std::ref(train)); });
  }
  measure("decode", count, seconds, [&] {
    for (const std::vector<uint8_t>& file : files)
      open_jpeg(file)->decode_all();
  });
  std::vector<uint8_t> rgb;
  measure("bare decode", count, seconds, [&] {
    for (const std::vector<uint8_t>& file : files)
      bare_decode(file, rgb);
  });
}

}  // namespace sdp::bench
