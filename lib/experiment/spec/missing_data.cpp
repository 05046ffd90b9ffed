#include "experiment/spec/missing_data.h"

#include <string_view>

#include "spec/value_text.h"

namespace sdp {
namespace {

constexpr std::string_view kExampleImages = "examples/data";
constexpr std::string_view kExampleTokens = "data/text";

std::string_view files_of(DatasetName name) {
  switch (name) {
    case DatasetName::kCifar10:
      return "CIFAR-10's binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin";
    case DatasetName::kCifar100:
      return "CIFAR-100's binary version: train.bin and test.bin";
    case DatasetName::kSvhn:
      return "SVHN's cropped digits: train_32x32.mat and test_32x32.mat";
    case DatasetName::kImageNet:
      return "ImageNet's images: train/CLASS/*.JPEG and val/CLASS/*.JPEG, or tar shards of them";
    case DatasetName::kTokens:
      return "shards of tokens: *train*.bin and *val*.bin";
  }
  return "";
}

/// The command that makes the folder.
std::string command_to_get(const DataSpec& data) {
  switch (data.name) {
    case DatasetName::kCifar10:
    case DatasetName::kCifar100:
    case DatasetName::kSvhn: {
      const std::string name =
          data.svhn_extra && data.name == DatasetName::kSvhn ? "svhn_extra" : std::string(name_of(data.name));
      return "scripts/fetch_data " + name + " " + data.path;
    }
    case DatasetName::kImageNet:
      return "scripts/fetch_data imagenet " + data.path +
             " --from DIR    (DIR: the archives, which need an account at image-net.org)";
    case DatasetName::kTokens:
      return "scripts/prepare_tokens.py --dataset HuggingFaceFW/fineweb --subset sample-10BT --name fineweb "
             "--out " +
             data.path;
  }
  return "";
}

/// Command lines that train on what the source tree itself holds.
std::string commands_at_hand(const ExperimentSpec& spec) {
  const std::string images(kExampleImages);
  const std::string tokens(kExampleTokens);
  switch (spec.data.name) {
    case DatasetName::kCifar10:
      return "  the same command with --set data.path=" + images;
    case DatasetName::kCifar100:
    case DatasetName::kSvhn:
      return "  the same command with --set data='{name: cifar10, path: " + images +
             "}' --set model.num_classes=10";
    case DatasetName::kImageNet:
      return "  build/sdp-train --config configs/" + std::string(spec.model.name()) +
             "_bsdp.yaml --set data.path=" + images;
    case DatasetName::kTokens:
      return "  scripts/prepare_tokens.py README.md docs/design.md docs/data.md --tokenizer bytes "
             "--val-tokens 8192 "
             "--out " +
             tokens + "\n  build/sdp-train --config configs/llama_tiny_tokens.yaml --set data.path=" + tokens;
  }
  return "";
}

}  // namespace

std::string missing_data_advice(const ExperimentSpec& spec) {
  const bool has_tokens = spec.data.name == DatasetName::kTokens;
  return "It is to hold " + std::string(files_of(spec.data.name)) + ". To get them:\n  " +
         command_to_get(spec.data) + "\nTo train " +
         (has_tokens ? "a tiny LLaMA on the bytes of the documentation" : "on 5,000 images of CIFAR-10") +
         " instead:\n" + commands_at_hand(spec) +
         (spec.train.precision == Precision::kBf16 && !has_tokens
              ? "\nOn a CPU add --set train.precision=fp32, which is several times as fast there as bf16."
              : "");
}

}  // namespace sdp
