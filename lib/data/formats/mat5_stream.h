#pragma once

// The bytes of one variable of a MAT-file, inflated if they are compressed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

struct z_stream_s;

namespace sdp {

/// The fault of a variable, without its position.
struct Mat5Damage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The tag of a data element. The data and its padding follow in the stream.
struct Mat5Tag {
  uint32_t type;
  uint32_t bytes;
  uint32_t padding;
};

/// Types of elements that this reader supports.
inline constexpr uint32_t kMatInt8 = 1;
inline constexpr uint32_t kMatUint8 = 2;
inline constexpr uint32_t kMatInt32 = 5;
inline constexpr uint32_t kMatUint32 = 6;
inline constexpr uint32_t kMatMatrix = 14;
inline constexpr uint32_t kMatCompressed = 15;

uint32_t load_uint32(std::span<const uint8_t> bytes);

/// Throws Mat5Damage if the bytes end early, do not inflate, or are more than the variable states.
class Mat5Stream {
 public:
  /// `element`: the content of a variable's element in the file: a matrix or a compressed element that
  /// contains one.
  Mat5Stream(std::span<const uint8_t> element, bool compressed);

  /// Remaining bytes of the variable according to its tag; limited to what the file or its compressed data
  /// can hold.
  uint64_t bytes_left() const { return bytes_left_; }
  void read(std::span<uint8_t> bytes);
  Mat5Tag read_tag();
  void skip(uint32_t bytes);
  /// Throws unless the variable ends here: no byte is left, and the checksum of compressed data is correct.
  void expect_end();

 private:
  struct InflateEnd {
    void operator()(z_stream_s* inflater) const;
  };

  void inflate_into(std::span<uint8_t> bytes);

  std::span<const uint8_t> rest_;  // remaining uncompressed bytes
  std::unique_ptr<z_stream_s, InflateEnd> inflater_;
  uint64_t bytes_left_;
};

}  // namespace sdp
