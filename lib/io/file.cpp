#include "io/file.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "spec/error.h"
#include "spec/hash.h"
#include "spec/text.h"

namespace sdp {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

Descriptor open_file(const std::filesystem::path& path, int flags) {
  Descriptor file(::open(path.c_str(), flags));
  if (file.number() < 0) throw_io_error("open", path, errno);
  return file;
}

/// Throws DataError unless the path is a regular file or a link to one. Opening a pipe would wait for
/// somebody who writes into it.
void check_regular_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error) throw_io_error("open", path, error.value());
  if (std::filesystem::is_directory(status)) throw_io_error("read", path, EISDIR);
  if (!std::filesystem::is_regular_file(status))
    throw DataError("cannot read " + path.string() +
                    ": it is a pipe, a socket or a device, expected a regular file. Put a file there.");
}

}  // namespace

std::string_view advice_for(int error) {
  switch (error) {
    case EMFILE:
      return "Raise this process's limit (ulimit -n), then run again.";
    case ENFILE:
      return "Raise this host's limit (sysctl fs.file-max) or end other programs, then run again.";
    case ENOSPC:
    case EDQUOT:
      return "Free space there or choose another disk, then run again.";
    case EACCES:
    case EPERM:
    case EROFS:
      return "Check the permissions of that place or choose another one.";
    case ENOENT:
    case ENOTDIR:
      return "Check that the path is right.";
    case EBUSY:
    case ENOTEMPTY:
      return "A process, perhaps on another host, still has a file there open.";
    default:
      return "Check the disk, then run again.";
  }
}

void throw_io_error(std::string_view action, const std::filesystem::path& path, int error) {
  throw DataError("cannot " + std::string(action) + " " + path.string() + ": " +
                  std::generic_category().message(error) + ". " + std::string(advice_for(error)));
}

void check_content(const std::filesystem::path& path, std::span<const std::byte> content) {
  const std::string wrong = wrong_content({reinterpret_cast<const char*>(content.data()), content.size()});
  if (!wrong.empty()) throw DataError(path.string() + ": " + wrong + ".");
}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

OutputFile::OutputFile(std::filesystem::path path, Mode mode) : path_(std::move(path)) {
  const int position = mode == Mode::kAppend ? O_APPEND : mode == Mode::kNew ? O_EXCL : O_TRUNC;
  if (mode == Mode::kNew && ::unlink(path_.c_str()) != 0 && errno != ENOENT)
    throw_io_error("replace", path_, errno);
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | position, 0666));
  if (file_.number() < 0) throw_io_error("create", path_, errno);
}

void OutputFile::write(std::span<const std::byte> data) {
  if (buffer_.size() + data.size() > kBufferBytes) flush();
  if (data.size() >= kBufferBytes)
    write_all(data);
  else
    buffer_.insert(buffer_.end(), data.begin(), data.end());
}

void OutputFile::flush() {
  write_all(buffer_);
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  if (::fsync(file_.number()) != 0) throw_io_error("write", path_, errno);
}

bool OutputFile::is_regular() const {
  struct stat status = {};
  return ::fstat(file_.number(), &status) == 0 && S_ISREG(status.st_mode);
}

void OutputFile::write_all(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(file_.number(), data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_io_error("write", path_, errno);
    data = data.subspan(static_cast<size_t>(written));
  }
}

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), file_(std::filesystem::path(path_) += ".tmp", OutputFile::Mode::kNew) {}

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

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  check_regular_file(path_);
  file_ = open_file(path_, O_RDONLY | O_CLOEXEC);
}

int64_t InputFile::size_bytes() const {
  struct stat status = {};
  if (::fstat(file_.number(), &status) != 0) throw_io_error("read", path_, errno);
  return status.st_size;
}

void InputFile::read_at(int64_t offset_bytes, std::span<std::byte> data) const {
  while (!data.empty()) {
    const ssize_t got = ::pread(file_.number(), data.data(), data.size(), offset_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error("read", path_, errno);
    if (got == 0)
      throw DataError(path_.string() + ": the file ends at offset " + std::to_string(offset_bytes) +
                      ", where " + std::to_string(data.size()) +
                      " more bytes are expected. Write or copy it again.");
    data = data.subspan(static_cast<size_t>(got));
    offset_bytes += got;
  }
}

// After the other constructor the destructor runs if this one throws.
MappedFile::MappedFile(const std::filesystem::path& path) : MappedFile() {
  check_regular_file(path);
  const Descriptor file = open_file(path, O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (::fstat(file.number(), &status) != 0) throw_io_error("read", path, errno);
  if (status.st_size == 0) return;  // mmap refuses a length of 0
  const auto size = static_cast<size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) throw_io_error("read", path, errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
  check_content(path, bytes_);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

void MappedFile::advise(Access access) const {
  if (bytes_.empty()) return;
  const int how = access == Access::kRandom       ? MADV_RANDOM
                  : access == Access::kSequential ? MADV_SEQUENTIAL
                                                  : MADV_NORMAL;
  // A file system that knows no advice reads as it always does.
  (void)::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), how);
}

std::string read_text(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  check_content(path, std::as_bytes(std::span(text)));
  return text;
}

std::vector<uint8_t> read_bytes(const std::filesystem::path& path) {
  const InputFile file(path);
  std::vector<uint8_t> bytes(static_cast<size_t>(file.size_bytes()));
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, const std::string& line, bool is_whole)>& use) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_io_error("read", path, errno);
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number)
    use(number, line, !in.eof());
  if (in.bad()) throw_io_error("read", path, errno);
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file = open_file(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Some network file systems cannot sync a folder and say so with EINVAL; their names are durable at once.
  if (::fsync(file.number()) != 0 && errno != EINVAL) throw_io_error("write", folder, errno);
}

std::vector<FolderEntry> list_folder(const std::filesystem::path& folder) {
  std::vector<FolderEntry> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    const bool is_folder = it->is_directory(unknown);
    entries.push_back(
        {.name = it->path().filename().string(), .is_folder = is_folder, .leads_nowhere = bool(unknown)});
  }
  if (error) throw_io_error("list", folder, error.value());
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

std::vector<std::string> entry_names(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  if (std::filesystem::exists(folder, error) || error)
    for (FolderEntry& entry : list_folder(folder))
      names.push_back(std::move(entry.name));
  return names;
}

std::vector<std::filesystem::path> files_matching(const std::filesystem::path& folder,
                                                  const std::string& pattern) {
  std::vector<std::filesystem::path> files;
  for (const FolderEntry& entry : list_folder(folder))
    if (!entry.is_folder && fnmatch(pattern.c_str(), entry.name.c_str(), FNM_PERIOD) == 0)
      files.push_back(folder / entry.name);
  return files;
}

FileDigest digest_file(const std::filesystem::path& path, const OnProgress& on_progress) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_io_error("read", path, errno);
  std::error_code ignored;
  const auto size_bytes = static_cast<int64_t>(std::filesystem::file_size(path, ignored));
  std::vector<char> buffer(size_t{1} << 20);
  Xxh3 hash;
  FileDigest digest;
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(std::as_bytes(std::span(buffer).first(static_cast<size_t>(in.gcount()))));
    digest.bytes += in.gcount();
    on_progress(digest.bytes, size_bytes);
  }
  if (in.bad()) throw_io_error("read", path, errno);
  digest.xxh3_128 = hash.hex();
  return digest;
}

}  // namespace sdp
