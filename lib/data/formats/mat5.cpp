#include "data/formats/mat5.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "data/formats/mat5_stream.h"
#include "spec/error.h"

namespace sdp {

namespace {

namespace fs = std::filesystem;

constexpr size_t kHeaderBytes = 128;
constexpr size_t kTagBytes = 8;
constexpr uint32_t kVersionAndOrder =
    0x4d490100;  // at offset 124: version 0x0100, "MI" as written by the machine
constexpr uint32_t kVersionHdf5 = 0x4d490200;
constexpr uint32_t kClassUint8 = 9;
constexpr uint32_t kComplexFlag = 0x0800;
constexpr uint32_t kMostDimensions = 32;
constexpr uint32_t kMostNameBytes = 255;
constexpr std::string_view kAdvice = "Download or copy the file again.";

std::span<const uint8_t> bytes_of(const MappedFile& file) {
  return {reinterpret_cast<const uint8_t*>(file.bytes().data()), file.bytes().size()};
}

void check_header(const fs::path& path, std::span<const uint8_t> file) {
  if (file.size() < kHeaderBytes)
    throw DataError(fmt::format("{}: {} bytes, expected a header of {} bytes and variables. {}",
                                path.string(), file.size(), kHeaderBytes, kAdvice));
  const uint32_t version = load_uint32(file.subspan(124));
  if (version == kVersionHdf5)
    throw DataError(fmt::format(
        "{}: a MAT-file of version 7.3 (HDF5), expected version 5 (MATLAB: save -v7).", path.string()));
  if (version != kVersionAndOrder)
    throw DataError(
        fmt::format("{}: version and byte order {:#010x} at offset 124, expected {:#010x}. This is no "
                    "little-endian MAT-file of version 5. {}",
                    path.string(), version, kVersionAndOrder, kAdvice));
}

/// Size of the content of the element whose tag is at `offset`, in bytes.
uint32_t element_bytes(const fs::path& path, std::span<const uint8_t> file, size_t offset) {
  const size_t left = file.size() - offset;
  if (left < kTagBytes)
    throw DataError(fmt::format("{}: {} bytes are left at offset {}, expected the {} of a variable's tag. {}",
                                path.string(), left, offset, kTagBytes, kAdvice));
  const uint32_t type = load_uint32(file.subspan(offset));
  const uint32_t bytes = load_uint32(file.subspan(offset + 4));
  if (type != kMatMatrix && type != kMatCompressed)
    throw DataError(
        fmt::format("{}: element of type {} at offset {}, expected a variable ({} or, compressed, {}). {}",
                    path.string(), type, offset, kMatMatrix, kMatCompressed, kAdvice));
  if (bytes > left - kTagBytes)
    throw DataError(fmt::format("{}: the variable at offset {} has {} bytes, but the file ends at {}. {}",
                                path.string(), offset, bytes, file.size(), kAdvice));
  return bytes;
}

/// Throws Mat5Damage unless the tag has the type `type` and least..most bytes.
void expect_tag(const Mat5Tag& tag, std::string_view what, uint32_t type, uint32_t least, uint32_t most) {
  if (tag.type != type || tag.bytes < least || tag.bytes > most)
    throw Mat5Damage(fmt::format("its {} are {} bytes of type {}, expected {}..{} of type {}", what,
                                 tag.bytes, tag.type, least, most, type));
}

/// The product of the sizes; throws Mat5Damage for a negative size or a product beyond int64.
int64_t product_of(std::span<const int64_t> dimensions) {
  int64_t product = 1;
  for (const int64_t size : dimensions)
    if (size < 0 || __builtin_mul_overflow(product, size, &product))
      throw Mat5Damage(fmt::format("it states a size of {}, or too many values in all", size));
  return product;
}

std::vector<int64_t> read_dimensions(Mat5Stream& stream) {
  const Mat5Tag tag = stream.read_tag();
  expect_tag(tag, "sizes", kMatInt32, 2 * 4, kMostDimensions * 4);
  if (tag.bytes % 4 != 0) throw Mat5Damage(fmt::format("its sizes are {} bytes", tag.bytes));
  std::vector<uint8_t> bytes(tag.bytes);
  stream.read(bytes);
  stream.skip(tag.padding);
  std::vector<int64_t> dimensions;
  for (size_t at = 0; at < bytes.size(); at += 4)
    dimensions.push_back(static_cast<int32_t>(load_uint32(std::span(bytes).subspan(at))));
  return dimensions;
}

std::string read_name(Mat5Stream& stream) {
  const Mat5Tag tag = stream.read_tag();
  expect_tag(tag, "name's letters", kMatInt8, 1, kMostNameBytes);
  std::vector<uint8_t> letters(tag.bytes);
  stream.read(letters);
  stream.skip(tag.padding);
  return {letters.begin(), letters.end()};
}

}  // namespace

Mat5Array::Mat5Array(const fs::path& path, std::span<const uint8_t> file, size_t offset)
    : path_(path), offset_bytes_(static_cast<int64_t>(offset)) {
  const uint32_t bytes = element_bytes(path, file, offset);
  const bool compressed = load_uint32(file.subspan(offset)) == kMatCompressed;
  try {
    stream_ = std::make_unique<Mat5Stream>(file.subspan(offset + kTagBytes, bytes), compressed);
    read_header();
  } catch (const Mat5Damage& damage) {
    fail(damage.what());
  }
}

Mat5Array::~Mat5Array() = default;
Mat5Array::Mat5Array(Mat5Array&&) noexcept = default;
Mat5Array& Mat5Array::operator=(Mat5Array&&) noexcept = default;

void Mat5Array::read_header() {
  expect_tag(stream_->read_tag(), "flags", kMatUint32, 8, 8);
  std::array<uint8_t, 8> flags;  // class and flags, then a count that only sparse arrays use
  stream_->read(flags);
  dimensions_ = read_dimensions(*stream_);
  name_ = read_name(*stream_);
  const uint32_t class_and_flags = load_uint32(flags);
  if ((class_and_flags & 0xff) != kClassUint8 || (class_and_flags & kComplexFlag) != 0)
    throw Mat5Damage(fmt::format("it has class and flags {:#06x}, expected a real array of class uint8 ({})",
                                 class_and_flags, kClassUint8));
  values_left_ = product_of(dimensions_);
  const Mat5Tag tag = stream_->read_tag();
  if (tag.type != kMatUint8 || tag.bytes != values_left_)
    throw Mat5Damage(fmt::format("it holds {} bytes of type {}, expected {} values of type {}", tag.bytes,
                                 tag.type, values_left_, kMatUint8));
  if (tag.bytes > stream_->bytes_left())
    throw Mat5Damage(
        fmt::format("it states {} values, but only {} more bytes", values_left_, stream_->bytes_left()));
  padding_ = tag.padding;
}

int64_t Mat5Array::numel() const {
  return product_of(dimensions_);
}

std::string Mat5Array::place() const {
  return fmt::format("{}: variable {} at offset {}", path_.string(),
                     name_.empty() ? "(without a name)" : name_, offset_bytes_);
}

void Mat5Array::fail(const std::string& what) const {
  throw DataError(fmt::format("{}: {}. {}", place(), what, kAdvice));
}

void Mat5Array::read(std::span<uint8_t> values) {
  if (static_cast<int64_t>(values.size()) > values_left_) throw std::logic_error("Mat5Array: no such values");
  values_left_ -= static_cast<int64_t>(values.size());
  try {
    stream_->read(values);
  } catch (const Mat5Damage& damage) {
    fail(damage.what());
  }
}

void Mat5Array::finish() {
  if (values_left_ != 0) throw std::logic_error("Mat5Array: values are left");
  try {
    stream_->skip(padding_);
    stream_->expect_end();
  } catch (const Mat5Damage& damage) {
    fail(damage.what());
  }
}

Mat5File::Mat5File(const fs::path& path) : path_(path), file_(path) {
  const std::span<const uint8_t> file = bytes_of(file_);
  check_header(path, file);
  for (size_t offset = kHeaderBytes; offset < file.size();
       offset += kTagBytes + element_bytes(path, file, offset))
    offset_of_.emplace_back(Mat5Array(path, file, offset).name(), offset);
}

Mat5Array Mat5File::open(std::string_view name) const {
  const auto is_named = [&](const auto& entry) { return entry.first == name; };
  const auto found = std::find_if(offset_of_.begin(), offset_of_.end(), is_named);
  if (found == offset_of_.end())
    throw DataError(
        fmt::format("{}: no variable {} among {}. {}", path_.string(), name, offset_of_.size(), kAdvice));
  if (const auto again = std::find_if(std::next(found), offset_of_.end(), is_named);
      again != offset_of_.end())
    throw DataError(fmt::format("{}: variable {} at offset {} and once more at {}. {}", path_.string(), name,
                                found->second, again->second, kAdvice));
  return {path_, bytes_of(file_), found->second};
}

}  // namespace sdp
