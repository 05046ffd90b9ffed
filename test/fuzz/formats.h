#pragma once

// The formats that the program reads, each with small valid files.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mutate.h"

namespace sdp::fuzz {

struct Format {
  std::string_view name;
  /// The name that the program expects for a file of the format in its folder.
  std::string_view file_name;
  Targets targets;
  /// Valid files, which `read` accepts.
  std::vector<std::string> (*seeds)();
  /// Reads the file the way the program does and inspects the whole result. Throws DataError or UsageError if
  /// the file is refused, and std::logic_error if a result breaks the guarantees of the reader.
  void (*read)(const std::filesystem::path& file);
  /// Corrects checksums and the like, so that damage reaches the contents that they protect; null: there are
  /// none.
  std::string (*repair)(std::string bytes) = nullptr;
};

std::vector<Format> array_formats();        ///< safetensors, and images that are kept in memory
std::vector<Format> jpeg_formats();         ///< JPEG, PNG, WebP, and tar shards of JPEG
std::vector<Format> image_index_formats();  ///< the saved list of images
std::vector<Format> token_formats();

}  // namespace sdp::fuzz
