#include "data/small_images.h"

#include <fmt/format.h>

namespace sdp {

namespace {

constexpr ImageShape kColor{.channels = 3, .height = 32, .width = 32};
constexpr ImageShape kGray{.channels = 1, .height = 28, .width = 28};
constexpr Augmentation kCrop = Augmentation::kCrop;
constexpr Augmentation kFlip = Augmentation::kFlip;

std::vector<std::string> digit_names() {
  return {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
}

/// Packed and not.
std::vector<std::string_view> idx_files() {
  return {"train-images-idx3-ubyte",    "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte",
          "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte",     "t10k-images-idx3-ubyte.gz",
          "t10k-labels-idx1-ubyte",     "t10k-labels-idx1-ubyte.gz"};
}

}  // namespace

const HeldImages& Cifar10Spec::images() {
  static const HeldImages images{
      .shape = kColor,
      .usual_augmentation = {kCrop, kFlip},
      .normalization = {.mean = {0.4914, 0.4822, 0.4465}, .stddev = {0.2470, 0.2435, 0.2616}},
      .official_samples = 50'000,
      .class_names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
                      "truck"},
      .official_files = {"cifar-10-binary.tar.gz", "cifar-10-batches-bin", "data_batch_1.bin",
                         "test_batch.bin"},
      .as_shards = true};
  return images;
}

const HeldImages& Cifar100Spec::images() {
  static const HeldImages images{
      .shape = kColor,
      .usual_augmentation = {kCrop, kFlip},
      .normalization = {.mean = {0.5071, 0.4865, 0.4409}, .stddev = {0.2673, 0.2564, 0.2762}},
      .official_samples = 50'000,
      .class_names = {"apple",    "aquarium_fish", "baby",       "bear",         "beaver",
                      "bed",      "bee",           "beetle",     "bicycle",      "bottle",
                      "bowl",     "boy",           "bridge",     "bus",          "butterfly",
                      "camel",    "can",           "castle",     "caterpillar",  "cattle",
                      "chair",    "chimpanzee",    "clock",      "cloud",        "cockroach",
                      "couch",    "crab",          "crocodile",  "cup",          "dinosaur",
                      "dolphin",  "elephant",      "flatfish",   "forest",       "fox",
                      "girl",     "hamster",       "house",      "kangaroo",     "keyboard",
                      "lamp",     "lawn_mower",    "leopard",    "lion",         "lizard",
                      "lobster",  "man",           "maple_tree", "motorcycle",   "mountain",
                      "mouse",    "mushroom",      "oak_tree",   "orange",       "orchid",
                      "otter",    "palm_tree",     "pear",       "pickup_truck", "pine_tree",
                      "plain",    "plate",         "poppy",      "porcupine",    "possum",
                      "rabbit",   "raccoon",       "ray",        "road",         "rocket",
                      "rose",     "sea",           "seal",       "shark",        "shrew",
                      "skunk",    "skyscraper",    "snail",      "snake",        "spider",
                      "squirrel", "streetcar",     "sunflower",  "sweet_pepper", "table",
                      "tank",     "telephone",     "television", "tiger",        "tractor",
                      "train",    "trout",         "tulip",      "turtle",       "wardrobe",
                      "whale",    "willow_tree",   "wolf",       "woman",        "worm"},
      .official_files = {"cifar-100-binary.tar.gz", "cifar-100-binary", "train.bin", "test.bin"}};
  return images;
}

const HeldImages& SvhnSpec::images() {
  static const HeldImages images{
      .shape = kColor,
      .usual_augmentation = {kCrop},
      .normalization = {.mean = {0.4377, 0.4438, 0.4728}, .stddev = {0.1980, 0.2010, 0.1970}},
      .official_samples = 73'257,
      .class_names = digit_names(),
      .official_files = {"train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"}};
  return images;
}

std::vector<std::string> SvhnSpec::files(Split split) const {
  std::vector<std::string> files = HeldImagesRow::files(split);
  if (svhn_extra && split == Split::kTrain) files.emplace_back("extra.safetensors");
  return files;
}

const HeldImages& MnistSpec::images() {
  static const HeldImages images{.shape = kGray,
                                 .usual_augmentation = {},
                                 .normalization = {.mean = {0.1307}, .stddev = {0.3081}},
                                 .official_samples = 60'000,
                                 .class_names = digit_names(),
                                 .official_files = idx_files()};
  return images;
}

const HeldImages& FashionMnistSpec::images() {
  static const HeldImages images{.shape = kGray,
                                 .usual_augmentation = {kCrop, kFlip},
                                 .normalization = {.mean = {0.2860}, .stddev = {0.3530}},
                                 .official_samples = 60'000,
                                 .class_names = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                                 "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"},
                                 .official_files = idx_files()};
  return images;
}

std::string other_small_images() {
  return fmt::format(
      "  the same command with --set data='{{name: cifar10, path: {}}}' --set model.num_classes=10",
      kExampleImages);
}

MissingData missing_arrays(const HeldImages& set, std::string_view name, std::string command) {
  std::string other_commands = other_small_images();
  if (name == Cifar10Spec::names[0])
    other_commands = fmt::format("  the same command with --set data.path={}", kExampleImages);
  if (set.shape != kColor) other_commands += " --set model.image_size=32 --set model.image_channels=3";
  return {.files = "train.safetensors and val.safetensors",
          .command = std::move(command),
          .other_data = std::string(kExampleImagesText),
          .other_commands = std::move(other_commands)};
}

}  // namespace sdp
