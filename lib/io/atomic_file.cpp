#include "io/atomic_file.h"

#include <system_error>
#include <utility>

namespace sdp {
namespace {

std::filesystem::path temporary_name(std::filesystem::path path) {
  return path += ".tmp";
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), file_(temporary_name(path_), OutputFile::Mode::kNew) {}

AtomicFile::~AtomicFile() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove(file_.path(), ignored);
}

void AtomicFile::commit() {
  file_.sync();
  std::error_code error;
  std::filesystem::rename(file_.path(), path_, error);
  if (error) throw_io_error("write", path_, error.value());
  committed_ = true;
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".");
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace sdp
