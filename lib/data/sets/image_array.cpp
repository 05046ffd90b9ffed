#include "data/sets/image_array.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace sdp {

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
