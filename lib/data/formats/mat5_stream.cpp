#include "data/formats/mat5_stream.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

namespace sdp {

namespace {

constexpr uint64_t kFirstTagBytes = 8;
/// Deflate encodes up to 258 bytes in two bits.
constexpr uint64_t kMostInflation = 1032;

}  // namespace

uint32_t load_uint32(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
}

void Mat5Stream::InflateEnd::operator()(z_stream_s* inflater) const {
  inflateEnd(inflater);
  delete inflater;
}

Mat5Stream::Mat5Stream(std::span<const uint8_t> element, bool compressed)
    : rest_(element), bytes_left_(element.size()) {
  if (!compressed) return;
  inflater_.reset(new z_stream{});
  inflater_->next_in = const_cast<Bytef*>(element.data());  // zlib only reads it
  inflater_->avail_in = static_cast<uInt>(element.size());  // an element's size has 32 bits
  if (inflateInit(inflater_.get()) != Z_OK) throw std::bad_alloc();

  bytes_left_ = kFirstTagBytes;
  const Mat5Tag tag = read_tag();
  if (tag.type != kMatMatrix)
    throw Mat5Damage(fmt::format("its compressed data is an element of type {}, expected a matrix ({})",
                                 tag.type, kMatMatrix));
  if (tag.bytes > kMostInflation * element.size())
    throw Mat5Damage(fmt::format("it states {} bytes, more than its {} compressed bytes can hold", tag.bytes,
                                 element.size()));
  bytes_left_ = tag.bytes;
}

void Mat5Stream::read(std::span<uint8_t> bytes) {
  if (bytes.size() > bytes_left_)
    throw Mat5Damage(
        fmt::format("it ends {} bytes too early for what it states", bytes.size() - bytes_left_));
  bytes_left_ -= bytes.size();
  if (inflater_) return inflate_into(bytes);
  std::copy_n(rest_.begin(), bytes.size(), bytes.begin());
  rest_ = rest_.subspan(bytes.size());
}

void Mat5Stream::inflate_into(std::span<uint8_t> bytes) {
  if (bytes.empty()) return;
  inflater_->next_out = bytes.data();
  inflater_->avail_out = static_cast<uInt>(bytes.size());
  const int result = inflate(inflater_.get(), Z_SYNC_FLUSH);
  // With the last byte, an error can only be in the checksum after it, which expect_end() reports.
  if (inflater_->avail_out == 0) return;
  const bool ended = result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR;
  const char* reason = ended || inflater_->msg == nullptr ? "it ends too early" : inflater_->msg;
  throw Mat5Damage(
      fmt::format("its compressed data is damaged after {} of its bytes: {}", inflater_->total_in, reason));
}

Mat5Tag Mat5Stream::read_tag() {
  std::array<uint8_t, 4> word;
  read(word);
  const uint32_t first = load_uint32(word);
  const uint32_t small_bytes = first >> 16;
  if (small_bytes != 0) {  // up to 4 bytes of data in the tag itself
    if (small_bytes > 4)
      throw Mat5Damage(
          fmt::format("it has a tag of a small element with {} bytes, expected 1..4", small_bytes));
    return {.type = first & 0xffff, .bytes = small_bytes, .padding = 4 - small_bytes};
  }
  read(word);
  const uint32_t bytes = load_uint32(word);
  return {.type = first, .bytes = bytes, .padding = (8 - bytes % 8) % 8};
}

void Mat5Stream::skip(uint32_t bytes) {
  std::array<uint8_t, 8> skipped;
  read(std::span(skipped).first(bytes));
}

void Mat5Stream::expect_end() {
  if (bytes_left_ != 0) throw Mat5Damage(fmt::format("{} bytes are left after its last value", bytes_left_));
  if (!inflater_) return;
  uint8_t beyond = 0;
  inflater_->next_out = &beyond;
  inflater_->avail_out = 1;
  const int result = inflate(inflater_.get(), Z_SYNC_FLUSH);
  if (result != Z_STREAM_END || inflater_->avail_out == 0 || inflater_->avail_in != 0)
    throw Mat5Damage(fmt::format("its compressed data does not end with its last value: {}",
                                 inflater_->msg ? inflater_->msg : "bytes are missing or left over"));
}

}  // namespace sdp
