#include "data/sets/image_array.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "data/sets/cifar.h"
#include "data/sets/svhn.h"

namespace sdp {

ImageArray read_image_array(const DataSpec& spec, Split split, const OnProblem& on_problem) {
  switch (spec.name) {
    case DatasetName::kCifar10:
      return read_cifar10(spec.path, split, on_problem);
    case DatasetName::kCifar100:
      return read_cifar100(spec.path, split, on_problem);
    case DatasetName::kSvhn:
      return read_svhn(spec.path, split, spec.svhn_extra, on_problem);
    case DatasetName::kImageNet:
    case DatasetName::kTokens:
      break;
  }
  throw std::logic_error("read_image_array: not a data set that is held in memory");
}

ArrayDataset::ArrayDataset(ImageArray array) : array_(std::move(array)) {
  if (array_.pixels.size() != array_.labels.size() * static_cast<size_t>(array_.shape.numel()))
    throw std::logic_error(
        fmt::format("ArrayDataset: {} pixels for {} labels", array_.pixels.size(), array_.labels.size()));
}

void ArrayDataset::read(int64_t index, std::span<uint8_t> chw) const {
  const auto numel = static_cast<size_t>(array_.shape.numel());
  if (chw.size() != numel) throw std::logic_error("ArrayDataset::read: the span does not fit an image");
  std::copy_n(array_.pixels.data() + checked(index) * numel, numel, chw.data());
}

DataIdentity ArrayDataset::identity() const {
  const uint64_t labels = XXH3_64bits(array_.labels.data(), array_.labels.size());
  const uint64_t all = XXH3_64bits_withSeed(array_.pixels.data(), array_.pixels.size(), labels);
  return {.samples = size(), .hash = fmt::format("{:016x}", all)};
}

size_t ArrayDataset::checked(int64_t index) const {
  if (index < 0 || index >= size()) throw std::logic_error(fmt::format("ArrayDataset: no image {}", index));
  return static_cast<size_t>(index);
}

}  // namespace sdp
