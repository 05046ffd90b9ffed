// Writes what lib/data reads and computes to stdout, for oracle.py and oracle_images.py:
//   dump_data FOLDER pixels train|test cifar10|cifar100|svhn|svhn_extra|mnist|fashion_mnist
//       per image: label (1 byte), pixels (3072 bytes, of the last two 784)
//   dump_data FOLDER batches SEED MIXUP_ALPHA CUTMIX_ALPHA [crop|flip..]
//       per batch: samples, labels, mixed labels if it is mixed (int64), mix (float64), images (float32)
//   dump_data FOLDER tokens train|test SEQUENCE_LENGTH [TRAIN_FILES TEST_FILES]
//       per sample: tokens (int64)
//   dump_data FOLDER epoch SEQUENCE_LENGTH
//       the tokens other than 0 that training reads in an epoch, and the process's own memory in KiB (int64)
//   dump_data FOLDER scan train|test VOCABULARY_SIZE
//       per shard, as text: name, bits of a token, tokens, smallest, largest, tokens beyond the vocabulary;
//       then the problems
//   dump_data FILE decode
//       height, width (int64), pixels [height, width, 3]
//   dump_data none boxes WIDTH HEIGHT SEED COUNT
//       per position 0..COUNT-1: left, top, right, bottom (int64) of the random resized crop
//   dump_data FOLDER imagenet train|test IMAGE_SIZE EVAL_RESIZE SCALED_DECODING SEED
//       per image: label (int64), pixels [3, IMAGE_SIZE, IMAGE_SIZE]; in training those of position 1000 +
//       index
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
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

namespace {

constexpr int64_t kAnyVocabulary = int64_t{1} << 32;

/// What follows the name of the program.
using Arguments = std::vector<std::string>;

template <class T>
void put(std::span<const T> values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

void put_numbers(const std::vector<int64_t>& values) {
  put<int64_t>(values);
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

void dump_pixels(const Arguments& arguments) {
  const sdp::ArrayDataset dataset = open_images(arguments[3], arguments[0], split_of(arguments[2]));
  std::vector<uint8_t> record(static_cast<size_t>(1 + dataset.shape().numel()));
  for (int64_t index = 0; index < dataset.size(); ++index) {
    record[0] = static_cast<uint8_t>(dataset.label(index));
    dataset.read(index, std::span(record).subspan(1));
    put<uint8_t>(record);
  }
}

/// The geometry that oracle.py repeats.
void dump_batches(const Arguments& arguments) {
  const sdp::ArrayDataset dataset = open_images("cifar10", arguments[0], sdp::Split::kTrain);
  sdp::TrainingBatches batches{
      .geometry = {.workers = 4, .replicas = 2, .accumulate_steps = 3, .batch_size = 16},
      .slots = {{.worker = 1, .replica = 0}, {.worker = 3, .replica = 1}},
      .first_step = 11,
      .last_step = 15,
      .seed = std::stoull(arguments[2]),
      .augment = {.mixup_alpha = std::stod(arguments[3]), .cutmix_alpha = std::stod(arguments[4])}};
  for (const std::string& step : std::span(arguments).subspan(5))
    batches.augment.steps.push_back(step == "crop" ? sdp::Augmentation::kCrop : sdp::Augmentation::kFlip);
  sdp::BatchLoader loader(dataset, batches, {.threads = 2, .prefetch_batches = 4});
  while (!loader.done()) {
    const sdp::Batch batch = loader.next();
    put<int64_t>(batch.samples);
    put<int64_t>(batch.labels);
    put<int64_t>(batch.mixed_labels);
    put<double>({&batch.mix, 1});
    put<float>(batch.images);
  }
}

sdp::DataSpec tokens_of(const Arguments& arguments, int64_t sequence_length = 1) {
  sdp::TokensSpec tokens{.sequence_length = sequence_length};
  if (arguments.size() == 6) {
    tokens.train_files = arguments[4];
    tokens.test_files = arguments[5];
  }
  return {.set = tokens, .path = arguments[0]};
}

void dump_tokens(const Arguments& arguments) {
  const sdp::DataSpec spec = tokens_of(arguments, std::stoll(arguments[3]));
  const sdp::TokenDataset dataset(spec, split_of(arguments[2]), kAnyVocabulary);
  for (int64_t index = 0; index < dataset.size(); ++index)
    put<int64_t>(dataset.eval_batch(std::vector{index}).tokens);
}

/// Without the pages of files (RssAnon).
int64_t own_memory_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
  throw sdp::DataError("/proc/self/status: no RssAnon");
}

void dump_epoch(const Arguments& arguments) {
  constexpr int64_t kBatchSize = 16;
  const int64_t length = std::stoll(arguments[2]);
  const sdp::TokenDataset dataset(tokens_of(arguments, length), sdp::Split::kTrain, kAnyVocabulary);
  const sdp::TrainingBatches batches{
      .geometry = {.workers = 1, .replicas = 1, .accumulate_steps = 1, .batch_size = kBatchSize},
      .slots = {{.worker = 0, .replica = 0}},
      .first_step = 0,
      .last_step = dataset.size() / kBatchSize,
      .seed = 1};
  sdp::BatchLoader loader(dataset, batches, {.threads = 2, .prefetch_batches = 8});
  while (!loader.done()) {
    const sdp::Batch batch = loader.next();
    for (size_t i = 0; i < batch.tokens.size(); ++i)
      if (batch.tokens[i] != 0 && static_cast<int64_t>(i) % (length + 1) < length)  // an input
        put_numbers({batch.tokens[i]});
  }
  put_numbers({own_memory_kib()});
}

void dump_scan(const Arguments& arguments) {
  std::vector<std::string> problems;
  const auto scans = sdp::scan_tokens(tokens_of(arguments), split_of(arguments[2]), std::stoll(arguments[3]),
                                      [&](const std::string& message) { problems.push_back(message); });
  for (const sdp::TokenScan& scan : scans)
    fmt::print("{} {} {} {} {} {}\n", scan.path.filename().string(), 8 * scan.token_bytes, scan.tokens,
               scan.smallest.value_or(-1), scan.largest.value_or(-1), scan.beyond_vocab);
  for (const std::string& problem : problems)
    fmt::print("{}\n", problem);
}

void dump_decoded(const Arguments& arguments) {
  const std::vector<uint8_t> file = sdp::read_bytes(arguments[0]);
  const std::unique_ptr<sdp::EncodedImage> image = sdp::open_image(file);
  const sdp::Pixels pixels = image->decode_all();
  put_numbers({image->height(), image->width()});
  for (int64_t y = 0; y < pixels.height(); ++y)
    for (int64_t x = 0; x < pixels.width(); ++x)
      put<uint8_t>({pixels.row(y) + x * sdp::kPixelBytes, 3});
}

void dump_boxes(const Arguments& arguments) {
  for (int64_t position = 0; position < std::stoll(arguments[5]); ++position) {
    const sdp::Box box = sdp::random_resized_crop(std::stoll(arguments[2]), std::stoll(arguments[3]),
                                                  std::stoull(arguments[4]), position);
    put_numbers({box.left, box.top, box.right, box.bottom});
  }
}

void dump_imagenet(const Arguments& arguments) {
  constexpr std::array kSteps = {sdp::Augmentation::kResizedCrop};
  const sdp::Split split = split_of(arguments[2]);
  // With shards, the number of classes is the number of their labels; otherwise, the number of folders.
  const sdp::ModelSpec model{
      .kind = sdp::ResNetSpec{.num_classes = 1000, .image_size = std::stoll(arguments[3])}};
  const sdp::ImageNetSpec set{
      .index_dir = std::filesystem::temp_directory_path() / "sdp-no-index",  // does not exist
      .eval_resize = std::stoll(arguments[4]),
      .scaled_decoding = arguments[5] == "1"};
  const auto dataset = sdp::open_imagenet({.set = set, .path = arguments[0]}, model, split);
  std::vector<uint8_t> chw(static_cast<size_t>(dataset->shape().numel()));
  for (int64_t index = 0; index < dataset->size(); ++index) {
    if (split == sdp::Split::kTrain)
      dataset->read_for_training(index, kSteps, std::stoull(arguments[6]), 1000 + index, chw);
    else
      dataset->read(index, chw);
    put_numbers({dataset->label(index)});
    put<uint8_t>(chw);
  }
}

const std::map<std::string, void (*)(const Arguments&)> kDumps = {
    {"pixels", dump_pixels}, {"batches", dump_batches}, {"tokens", dump_tokens}, {"epoch", dump_epoch},
    {"scan", dump_scan},     {"decode", dump_decoded},  {"boxes", dump_boxes},   {"imagenet", dump_imagenet}};

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argv + 1, argv + argc);
  try {
    kDumps.at(arguments.at(1))(arguments);
  } catch (const sdp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
