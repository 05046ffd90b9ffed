#pragma once

// Files that are replaced whole or not at all, whenever the machine stops.

#include <filesystem>
#include <string_view>

#include "io/file.h"

namespace sdp {

/// Written under a temporary name next to `path` and renamed by commit(). Without commit() the old file stays
/// and the temporary one is removed. One writer at a time. Throws DataError.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text) { file_.write(text); }
  /// fsync, rename, fsync of the folder.
  void commit();

 private:
  std::filesystem::path path_;
  OutputFile file_;
  bool committed_ = false;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace sdp
