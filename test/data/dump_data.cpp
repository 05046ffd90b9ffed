// Writes what lib/data reads and computes to stdout, for oracle.py and oracle_images.py:
//   dump_data FOLDER pixels train|test cifar10|cifar100|svhn|svhn_extra|mnist|fashion_mnist
//       per image: label (1 byte), pixels (3072 bytes, of the last two 784)
//   dump_data FOLDER batches SEED MIXUP_ALPHA CUTMIX_ALPHA
//       per batch: samples, labels, mixed labels if it is mixed (int64), mix (float64), images (float32)
//   dump_data FOLDER tokens train|test SEQUENCE_LENGTH [TRAIN_FILES TEST_FILES]
//       per sample: tokens (int64)
//   dump_data FOLDER scan train|test VOCABULARY_SIZE
//       per shard, as text: name, bits of a token, tokens, smallest, largest, tokens beyond the vocabulary;
//       then the problems
//   dump_data decode FILE
//       height, width (int64), pixels [height, width, 3]
//   dump_data boxes WIDTH HEIGHT SEED COUNT
//       per position 0..COUNT-1: left, top, right, bottom (int64) of the random resized crop
//   dump_data imagenet FOLDER train|test IMAGE_SIZE EVAL_RESIZE SCALED_DECODING SEED
//       per image: label (int64), pixels [3, IMAGE_SIZE, IMAGE_SIZE]; in training those of position 1000 +
//       index
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/crops.h"
#include "data/image_array.h"
#include "data/imagenet.h"
#include "data/loader.h"
#include "data/tokens.h"
#include "formats/image.h"
#include "io/file.h"
#include "spec/error.h"

namespace {

constexpr int64_t kAnyVocabulary = int64_t{1} << 32;

template <class T>
void put(std::span<const T> values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

void dump_pixels(const sdp::ImageDataset& dataset) {
  std::vector<uint8_t> record(static_cast<size_t>(1 + dataset.shape().numel()));
  for (int64_t index = 0; index < dataset.size(); ++index) {
    record[0] = static_cast<uint8_t>(dataset.label(index));
    dataset.read(index, std::span(record).subspan(1));
    put<uint8_t>(record);
  }
}

/// The geometry that oracle.py repeats.
void dump_batches(const sdp::Dataset& dataset, uint64_t seed, double mixup_alpha, double cutmix_alpha) {
  sdp::BatchLoader loader(
      dataset,
      sdp::TrainingBatches{.geometry = {.workers = 4, .replicas = 2, .accumulate_steps = 3, .batch_size = 16},
                           .slots = {{.worker = 1, .replica = 0}, {.worker = 3, .replica = 1}},
                           .first_step = 11,
                           .last_step = 15,
                           .seed = seed,
                           .augment = {.steps = {sdp::Augmentation::kCrop, sdp::Augmentation::kFlip},
                                       .mixup_alpha = mixup_alpha,
                                       .cutmix_alpha = cutmix_alpha}},
      {.threads = 2, .prefetch_batches = 4});
  while (!loader.done()) {
    const sdp::Batch batch = loader.next();
    put<int64_t>(batch.samples);
    put<int64_t>(batch.labels);
    put<int64_t>(batch.mixed_labels);
    put<double>({&batch.mix, 1});
    put<float>(batch.images);
  }
}

void dump_tokens(const sdp::TokenDataset& dataset) {
  for (int64_t index = 0; index < dataset.size(); ++index)
    put<int64_t>(dataset.eval_batch(std::vector{index}).tokens);
}

void dump_scan(const sdp::DataSpec& spec, sdp::Split split, int64_t vocab_size) {
  std::vector<std::string> problems;
  const auto scans = sdp::scan_tokens(spec, split, vocab_size,
                                      [&](const std::string& message) { problems.push_back(message); });
  for (const sdp::TokenScan& scan : scans)
    fmt::print("{} {} {} {} {} {}\n", scan.path.filename().string(), 8 * scan.token_bytes, scan.tokens,
               scan.smallest.value_or(-1), scan.largest.value_or(-1), scan.beyond_vocab);
  for (const std::string& problem : problems)
    fmt::print("{}\n", problem);
}

sdp::DataSpec tokens_of(const std::vector<std::string>& arguments, sdp::TokensSpec tokens = {}) {
  if (arguments.size() == 6) {
    tokens.train_files = arguments[4];
    tokens.test_files = arguments[5];
  }
  return {.set = tokens, .path = arguments[0]};
}

sdp::Split split_of(const std::string& name) {
  return name == "test" ? sdp::Split::kTest : sdp::Split::kTrain;
}

sdp::ArrayDataset open_images(const std::string& name, const std::string& folder, sdp::Split split) {
  sdp::DataSpec spec{.set = sdp::DataSetKind(name == "svhn_extra" ? "svhn" : name), .path = folder};
  if (name == "svhn_extra") spec.set.as<sdp::SvhnSpec>().svhn_extra = true;
  return spec.set.visit([&]<class Set>(const Set& set) -> sdp::ArrayDataset {
    if constexpr (Set::kind == sdp::DataKind::kHeldImages) {
      sdp::ImageArray images = sdp::read_set(set, spec, split, sdp::throw_problem);
      images.normalization = set.normalization();
      return sdp::ArrayDataset(std::move(images));
    } else {
      throw sdp::UsageError(name + " is not held in memory");
    }
  });
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

std::unique_ptr<sdp::ImageNet> open_imagenet(const std::vector<std::string>& arguments, bool train) {
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
  const std::string of_images = arguments.empty() ? "" : arguments[0];
  const std::string what = arguments.size() < 3 ? "" : arguments[1];
  try {
    if (of_images == "decode" && arguments.size() == 2) {
      dump_decoded(arguments[1]);
    } else if (of_images == "boxes" && arguments.size() == 5) {
      dump_boxes(std::stoll(arguments[1]), std::stoll(arguments[2]), std::stoull(arguments[3]),
                 std::stoll(arguments[4]));
    } else if (of_images == "imagenet" && arguments.size() == 7) {
      const bool train = arguments[2] == "train";
      dump_imagenet(*open_imagenet(arguments, train), train, std::stoull(arguments[6]));
    } else if (what == "pixels" && arguments.size() == 4) {
      dump_pixels(open_images(arguments[3], arguments[0], split_of(arguments[2])));
    } else if (what == "batches" && arguments.size() == 5) {
      dump_batches(open_images("cifar10", arguments[0], sdp::Split::kTrain), std::stoull(arguments[2]),
                   std::stod(arguments[3]), std::stod(arguments[4]));
    } else if (what == "tokens" && (arguments.size() == 4 || arguments.size() == 6)) {
      const sdp::DataSpec spec = tokens_of(arguments, {.sequence_length = std::stoll(arguments[3])});
      dump_tokens(sdp::TokenDataset(spec, split_of(arguments[2]), kAnyVocabulary));
    } else if (what == "scan" && arguments.size() == 4) {
      dump_scan(tokens_of(arguments), split_of(arguments[2]), std::stoll(arguments[3]));
    } else {
      return static_cast<int>(sdp::ExitCode::kUsage);
    }
  } catch (const sdp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
