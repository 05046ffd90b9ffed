#pragma once

// The formats that the program reads, each with small valid files.

#include <cstddef>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures.h"
#include "spec/error.h"

namespace sdp::fuzz {

struct Format {
  std::string_view name;
  /// The name that the program expects for a file of the format in its folder.
  std::string_view file_name;
  /// Bytes at the beginning of a file, with half of all damage.
  size_t header_bytes;
  /// Offsets of lengths and the like, with a quarter of the damage.
  std::vector<size_t> fields;
  /// Valid files, which `read` accepts.
  std::vector<std::string> (*seeds)();
  /// Reads the file the way the program does and inspects the whole result. Throws DataError or UsageError if
  /// the file is refused, and std::logic_error if a result breaks the guarantees of the reader.
  void (*read)(const std::filesystem::path& file);
  /// Corrects checksums and the like, so that damage reaches the contents that they protect; null: there are
  /// none.
  std::string (*repair)(std::string bytes) = nullptr;
};

std::vector<Format> image_formats();
std::vector<Format> other_formats();  ///< safetensors, the saved list of images, tokens

/// Sets the header's length so that the header ends with the last brace.
std::string repair_safetensors(std::string bytes);

inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Keeps the compiler from removing the reads, which are the purpose of the test.
inline void use(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes)
    sum += std::to_integer<unsigned>(byte);
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum;
}

}  // namespace sdp::fuzz
