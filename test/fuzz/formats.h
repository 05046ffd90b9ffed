#pragma once

// The formats that the program reads, each with small whole files of it.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mutate.h"

namespace sdp::fuzz {

struct Format {
  std::string_view name;
  /// What a file of the format is called in its folder.
  std::string_view file_name;
  Targets targets;
  /// Whole files, which `read` reads.
  std::vector<std::string> (*seeds)();
  /// Reads the file the way the program does and looks at all that came out. Throws DataError or UsageError
  /// for a file that is refused, and std::logic_error for a result that breaks the reader's word.
  void (*read)(const std::filesystem::path& file);
  /// Makes checksums and the like right again, so that damage reaches what they cover; null: there are none.
  std::string (*repair)(std::string bytes) = nullptr;
};

std::vector<Format> array_formats();        ///< images that are kept in memory: CIFAR, SVHN
std::vector<Format> jpeg_formats();         ///< JPEG, and tar shards of it
std::vector<Format> image_index_formats();  ///< the saved list of images
std::vector<Format> token_formats();
std::vector<Format> safetensors_formats();

}  // namespace sdp::fuzz
