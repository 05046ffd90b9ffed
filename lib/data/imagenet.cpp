#include "data/imagenet.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "data/crops.h"
#include "data/split_files.h"
#include "formats/image.h"
#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kExpected =
    "Expected class folders of JPEG, PNG or WebP images, train/CLASS/*.JPEG and val/CLASS/*.JPEG (or test/), "
    "or tar shards of such images, *train*.tar and *val*.tar.";

constexpr ShardNames kShardNames{.extension = ".tar", .val_and_test = true, .expected = kExpected};

// ---- what the folder holds ----

bool has_folders(const DataSpec& spec) {
  std::error_code error;
  return fs::is_directory(folder_of_split(spec.path, Split::kTrain), error) ||
         fs::is_directory(folder_of_split(spec.path, Split::kTest), error);
}

/// Whether to read shards instead of folders. Throws if there are neither, or both.
bool holds_shards(const DataSpec& spec) {
  std::error_code error;
  if (!fs::is_directory(spec.path, error))
    throw DataError(fmt::format("data.path: {} is not a folder. {}", spec.path, kExpected));
  const auto& set = spec.set.as<ImageNetSpec>();
  if (set.train_files || set.test_files) return true;
  const bool shards = !default_files(spec.path, Split::kTrain, kShardNames).empty() ||
                      !default_files(spec.path, Split::kTest, kShardNames).empty();
  const bool folders = has_folders(spec);
  if (shards && folders)
    throw DataError(fmt::format(
        "data.path: {} holds both class folders and tar shards, so it is unclear which to read. Move one "
        "of them to another folder, or set data.train_files and data.test_files to the shards' names.",
        spec.path));
  if (shards || folders) return shards;
  const fs::path kaggle = fs::path(spec.path) / "ILSVRC/Data/CLS-LOC";
  if (fs::is_directory(kaggle, error))
    throw DataError(fmt::format("data.path: {} holds ImageNet below itself. Set data.path: {}", spec.path,
                                kaggle.string()));
  throw DataError(fmt::format("data.path: {} holds no ImageNet. {}", spec.path, kExpected));
}

/// In a folder shared with other data sets, the name identifies the data set of an index.
fs::path index_path(const DataSpec& spec, Split split) {
  const std::string_view name = split == Split::kTrain ? "train" : "test";
  const auto& set = spec.set.as<ImageNetSpec>();
  if (!set.index_dir) return fs::path(spec.path) / fmt::format("{}.sdp-index", name);
  std::error_code error;
  const std::string path = fs::weakly_canonical(spec.path, error).string();
  return fs::path(*set.index_dir) /
         fmt::format("{}-{:016x}.sdp-index", name, XXH3_64bits(path.data(), path.size()));
}

void check_eval_resize(int64_t eval_resize, int64_t image_size) {
  if (eval_resize < image_size)
    throw UsageError(
        fmt::format("data.eval_resize: {} is smaller than model.image_size: {}, the crop that is cut out "
                    "of it. Set data.eval_resize to {} or more.",
                    eval_resize, image_size, image_size));
}

/// Checks the header before anything is decoded.
void check_pixels(const EncodedImage& image, int64_t most) {
  if (image.width() * image.height() > most)
    throw DataError(fmt::format(
        "the image is {} x {} pixels, expected at most {} in all (data.max_image_pixels). Scale it down",
        image.width(), image.height(), most));
}

/// Calls `use` with the image; adds the image's position to errors.
template <class Use>
void with_image(const ImageFiles& files, int64_t index, const ImageNetSpec& set, Use use) {
  const std::vector<uint8_t> file = files.read(index);
  try {
    const std::unique_ptr<EncodedImage> image = open_image(file);
    check_pixels(*image, set.max_image_pixels);
    use(*image);
  } catch (const DataError& error) {
    const std::string_view advice = set.on_error == OnError::kError
                                        ? "Replace it, or set data.on_error: skip to continue without it."
                                        : "Replace it.";
    throw DamagedImageError(fmt::format("{}: {}. {}", files.place(index), error.what(), advice));
  }
}

}  // namespace

ImageNet::ImageNet(std::unique_ptr<ImageFiles> files, const ImageNetSpec& set, int64_t image_size,
                   Normalization normalization, std::string index_note)
    : ImageDataset(set.on_error),
      files_(std::move(files)),
      set_(set),
      image_size_(image_size),
      normalization_(std::move(normalization)),
      index_note_(std::move(index_note)) {}

DataIdentity ImageNet::identity() const {
  const ImageIndex& index = files_->index();
  const std::unique_ptr<XXH3_state_t, void (*)(XXH3_state_t*)> state(
      XXH3_createState(), [](XXH3_state_t* of) { XXH3_freeState(of); });
  XXH3_64bits_reset(state.get());
  for (int64_t image = 0; image < index.size(); ++image) {
    const std::string_view name = index.name(image);
    const int64_t image_label = index.label(image);
    XXH3_64bits_update(state.get(), name.data(), name.size());
    XXH3_64bits_update(state.get(), &image_label, sizeof image_label);
  }
  return {.samples = index.size(), .hash = fmt::format("{:016x}", XXH3_64bits_digest(state.get()))};
}

int64_t ImageNet::checked(int64_t index) const {
  if (index < 0 || index >= size()) throw std::logic_error(fmt::format("ImageNet: no image {}", index));
  return index;
}

void ImageNet::check_span(std::span<const uint8_t> chw) const {
  if (static_cast<int64_t>(chw.size()) != shape().numel())
    throw std::logic_error("ImageNet: the span does not fit an image");
}

void ImageNet::read(int64_t index, std::span<uint8_t> chw) const {
  check_span(chw);
  with_image(*files_, checked(index), set_, [&](EncodedImage& image) {
    const Crop crop = center_crop(image.width(), image.height(), *set_.eval_resize, image_size_);
    decode_crop(image, crop, 8, image_size_, chw);
  });
}

void ImageNet::read_for_training(int64_t index, std::span<const Augmentation> steps, uint64_t seed,
                                 int64_t position, std::span<uint8_t> chw) const {
  if (std::ranges::find(steps, Augmentation::kResizedCrop) == steps.end()) return read(index, chw);
  check_span(chw);
  with_image(*files_, checked(index), set_, [&](EncodedImage& image) {
    const Crop crop = crop_of(random_resized_crop(image.width(), image.height(), seed, position));
    const int eighths = set_.scaled_decoding && image.scales() ? eighths_for(crop, image_size_) : 8;
    decode_crop(image, crop, eighths, image_size_, chw);
  });
}

std::optional<ImageNet::Finding> ImageNet::check_image(int64_t index, const OnProblem& on_problem) const {
  return attempt(on_problem, [&] {
    Finding finding;
    with_image(*files_, checked(index), set_, [&](EncodedImage& image) {
      const Pixels pixels = image.decode_all();
      finding.means =
          PixelMeans::of(kColorChannels, pixels.width() * pixels.height(), [&](int64_t channel, int64_t i) {
            return pixels.row(i / pixels.width())[i % pixels.width() * kPixelBytes + channel];
          });
      finding.shape = {.channels = kColorChannels, .height = image.height(), .width = image.width()};
    });
    return finding;
  });
}

std::unique_ptr<ImageNet> open_imagenet(const DataSpec& spec, const ModelSpec& model, Split split,
                                        const OnProblem& on_problem, const OnProgress& on_progress) {
  const auto& set = spec.set.as<ImageNetSpec>();
  check_eval_resize(set.eval_resize.value(), model.image_size());
  std::string note;
  const IndexOptions index{.path = index_path(spec, split), .note = note, .on_progress = on_progress};
  std::unique_ptr<ImageFiles> files =
      holds_shards(spec)
          ? open_shards(files_of_split({spec.path, set.train_files, set.test_files}, split, kShardNames),
                        model.num_classes(), index, on_problem)
          : open_class_folders(spec.path, split, index, on_problem);
  if (files->index().size() == 0) throw DataError(fmt::format("data.path: {} holds no images.", spec.path));
  return std::make_unique<ImageNet>(std::move(files), set, model.image_size(),
                                    spec.pixel_normalization().value(), std::move(note));
}

void ImageNetSpec::resolve(const ModelSpec& model) {
  if (!eval_resize) eval_resize = model.image_size() * 8 / 7;
}

const Normalization& ImageNetSpec::normalization() {
  static const Normalization normalization{.mean = {0.485, 0.456, 0.406}, .stddev = {0.229, 0.224, 0.225}};
  return normalization;
}

std::vector<std::string> ImageNetSpec::class_names(const DataSpec& data) const {
  return class_names_in(data.path);
}

MissingData ImageNetSpec::missing() const {
  return {
      .files =
          "ImageNet's images: train/CLASS/*.JPEG and val/CLASS/*.JPEG, or tar shards of them. The archives "
          "need an account at image-net.org",
      .command = "scripts/fetch_data imagenet --from FOLDER_OF_THE_ARCHIVES",
      .other_data = std::string(kExampleImagesText),
      .other_commands = other_small_images() + " --set model.image_size=32"};
}

std::unique_ptr<Dataset> open_set(const ImageNetSpec&, const DataSpec& data, const ModelSpec& model,
                                  Split split, const OnProgress& on_progress) {
  return open_imagenet(data, model, split, throw_problem, on_progress);
}

}  // namespace sdp
