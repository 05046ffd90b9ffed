// Writes what lib/data reads and computes to stdout, for oracle.py, oracle_images.py and test/scripts:
//   dump_data FOLDER pixels train|test SET: per image label (1 byte), pixels [C, H, W]
//   dump_data FOLDER batches SEED MIXUP_ALPHA CUTMIX_ALPHA [crop|flip..]: per batch samples, labels, mixed
//       labels if it is mixed (int64), mix (float64), images (float32)
//   dump_data FOLDER tokens train|test SEQUENCE_LENGTH [TRAIN_FILES TEST_FILES]: per sample tokens (int64)
//   dump_data FOLDER scan train|test VOCABULARY_SIZE: per shard, as text: name, bits of a token, tokens,
//       smallest, largest, tokens beyond the vocabulary; then the problems
//   dump_data FILE decode: height, width (int64), pixels [height, width, 3]
//   dump_data FOLDER imagenet train|test IMAGE_SIZE EVAL_RESIZE SCALED_DECODING SEED: per image label
//   (int64),
//       pixels [3, IMAGE_SIZE, IMAGE_SIZE]; in training those of position 1000 + index
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
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

namespace sdp {
namespace {

using Arguments = std::vector<std::string>;  ///< what follows the name of the program

template <class T>
void put(std::span<const T> values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

Split split_of(const std::string& name) {
  return name == "test" ? Split::kTest : Split::kTrain;
}

ArrayDataset open_images(const std::string& name, const std::string& folder, Split split) {
  DataSpec spec{.set = DataSetKind(name == "svhn_extra" ? "svhn" : name), .path = folder};
  if (name == "svhn_extra") spec.set.as<SvhnSpec>().svhn_extra = true;
  return spec.set.visit([&]<class Set>(const Set& set) -> ArrayDataset {
    if constexpr (Set::kind == DataKind::kHeldImages) {
      ImageArray images = read_set(set, spec, split, throw_problem);
      images.normalization = set.normalization();
      return ArrayDataset(std::move(images));
    } else {
      throw UsageError(name + " is not held in memory");
    }
  });
}

void dump_pixels(const Arguments& arguments) {
  const ArrayDataset dataset = open_images(arguments[3], arguments[0], split_of(arguments[2]));
  std::vector<uint8_t> record(static_cast<size_t>(1 + dataset.shape().numel()));
  for (int64_t index = 0; index < dataset.size(); ++index) {
    record[0] = static_cast<uint8_t>(dataset.label(index));
    dataset.read(index, std::span(record).subspan(1));
    put<uint8_t>(record);
  }
}

/// The geometry that oracle.py repeats.
void dump_batches(const Arguments& arguments) {
  const ArrayDataset dataset = open_images("cifar10", arguments[0], Split::kTrain);
  TrainingBatches batches{
      .geometry = {.workers = 4, .replicas = 2, .accumulate_steps = 3, .batch_size = 16},
      .slots = {{.worker = 1, .replica = 0}, {.worker = 3, .replica = 1}},
      .first_step = 11,
      .last_step = 15,
      .seed = std::stoull(arguments[2]),
      .augment = {.mixup_alpha = std::stod(arguments[3]), .cutmix_alpha = std::stod(arguments[4])}};
  for (const std::string& step : std::span(arguments).subspan(5))
    batches.augment.steps.push_back(step == "crop" ? Augmentation::kCrop : Augmentation::kFlip);
  BatchLoader loader(dataset, batches, {.threads = 2, .prefetch_batches = 4});
  while (!loader.done()) {
    const Batch batch = loader.next();
    put<int64_t>(batch.samples);
    put<int64_t>(batch.labels);
    put<int64_t>(batch.mixed_labels);
    put<double>({&batch.mix, 1});
    put<float>(batch.images);
  }
}

DataSpec tokens_of(const Arguments& arguments, int64_t sequence_length = 1) {
  TokensSpec tokens{.sequence_length = sequence_length};
  if (arguments.size() == 6) {
    tokens.train_files = arguments[4];
    tokens.test_files = arguments[5];
  }
  return {.set = tokens, .path = arguments[0]};
}

void dump_tokens(const Arguments& arguments) {
  const DataSpec spec = tokens_of(arguments, std::stoll(arguments[3]));
  const TokenDataset dataset(spec, split_of(arguments[2]), /*vocab_size=*/int64_t{1} << 32);
  for (int64_t index = 0; index < dataset.size(); ++index)
    put<int64_t>(dataset.eval_batch(std::vector{index}).tokens);
}

void dump_scan(const Arguments& arguments) {
  std::vector<std::string> problems;
  const auto scans = scan_tokens(tokens_of(arguments), split_of(arguments[2]), std::stoll(arguments[3]),
                                 [&](const std::string& message) { problems.push_back(message); });
  for (const TokenScan& scan : scans)
    fmt::print("{} {} {} {} {} {}\n", scan.path.filename().string(), 8 * scan.token_bytes, scan.tokens,
               scan.smallest.value_or(-1), scan.largest.value_or(-1), scan.beyond_vocab);
  for (const std::string& problem : problems)
    fmt::print("{}\n", problem);
}

void dump_decoded(const Arguments& arguments) {
  const std::vector<uint8_t> file = read_bytes(arguments[0]);
  const std::unique_ptr<EncodedImage> image = open_image(file);
  const Pixels pixels = image->decode_all();
  put<int64_t>(std::array{image->height(), image->width()});
  for (int64_t y = 0; y < pixels.height(); ++y)
    for (int64_t x = 0; x < pixels.width(); ++x)
      put<uint8_t>({pixels.row(y) + x * kPixelBytes, 3});
}

void dump_imagenet(const Arguments& arguments) {
  constexpr std::array kSteps = {Augmentation::kResizedCrop};
  const Split split = split_of(arguments[2]);
  // With shards, the number of classes is the number of their labels; otherwise, the number of folders.
  const ModelSpec model{.kind = ResNetSpec{.num_classes = 1000, .image_size = std::stoll(arguments[3])}};
  const ImageNetSpec set{
      .index_dir = std::filesystem::temp_directory_path() / "sdp-no-index",  // does not exist
      .eval_resize = std::stoll(arguments[4]),
      .scaled_decoding = arguments[5] == "1"};
  const auto dataset = open_imagenet({.set = set, .path = arguments[0]}, model, split);
  std::vector<uint8_t> chw(static_cast<size_t>(dataset->shape().numel()));
  for (int64_t index = 0; index < dataset->size(); ++index) {
    if (split == Split::kTrain)
      dataset->read_for_training(index, kSteps, std::stoull(arguments[6]), 1000 + index, chw);
    else
      dataset->read(index, chw);
    put<int64_t>(std::array{dataset->label(index)});
    put<uint8_t>(chw);
  }
}

const std::map<std::string, void (*)(const Arguments&)> kDumps = {
    {"pixels", dump_pixels}, {"batches", dump_batches}, {"tokens", dump_tokens},
    {"scan", dump_scan},     {"decode", dump_decoded},  {"imagenet", dump_imagenet}};

}  // namespace
}  // namespace sdp

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    sdp::kDumps.at(arguments.at(1))(arguments);
  } catch (const sdp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
