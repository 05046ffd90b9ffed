#pragma once

// Files by file descriptor, for what std::fstream hides: why a call failed, fsync, mmap, replacing a file
// whole. Every failure is a DataError with the path, the system's reason and what to do.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/on_progress.h"

namespace sdp {

/// What to do if the system reports this errno value.
std::string_view advice_for(int error);

/// Throws DataError "cannot <action> <path>: <reason of the errno value>. <advice>".
[[noreturn]] void throw_io_error(std::string_view action, const std::filesystem::path& path, int error);

/// Throws DataError if the file holds a Git LFS pointer, an HTML page or compressed data, which no file that
/// is read as it is begins with. MappedFile and read_text() call it. `content`: the file's, or its first KiB.
void check_content(const std::filesystem::path& path, std::span<const std::byte> content);

/// A file descriptor that is closed with the object. A negative number, as open() returns it on failure,
/// stands for none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  /// Leaves closing to the caller.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

/// Buffered output. What was not flushed when the object dies is lost: a destructor cannot report an error.
class OutputFile {
 public:
  enum class Mode {
    kTruncate,
    kAppend,
    kNew  ///< a new file, in place of what has the name: a link to elsewhere stays unwritten
  };

  OutputFile(std::filesystem::path path, Mode mode);

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Hands the buffer to the operating system.
  void flush();
  /// flush(), then fsync.
  void sync();

  const std::filesystem::path& path() const { return path_; }
  /// False for devices and pipes.
  bool is_regular() const;

 private:
  void write_all(std::span<const std::byte> data);

  std::filesystem::path path_;
  Descriptor file_;
  std::vector<std::byte> buffer_;
};

/// A file that is replaced whole or not at all, whenever the machine stops: written under a temporary name
/// next to `path` and renamed by commit(). Without commit() the old file stays and the temporary one is
/// removed. One writer at a time.
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

/// A file that several threads may read at once, each at its place.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);

  int64_t size_bytes() const;
  /// Fills `data` from `offset_bytes` on. A file that ends before that is an error too.
  void read_at(int64_t offset_bytes, std::span<std::byte> data) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
};

/// The whole of a file, mapped read-only.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

  /// How the bytes will be read, for what the system reads ahead: kNormal a little, kSequential far, kRandom
  /// nothing but the pages that are touched. What is read is the same.
  enum class Access { kNormal, kSequential, kRandom };
  void advise(Access access) const;

 private:
  MappedFile() = default;

  std::span<const std::byte> bytes_;
};

std::string read_text(const std::filesystem::path& path);

/// The whole of a file of bytes, without a copy on the way.
std::vector<uint8_t> read_bytes(const std::filesystem::path& path);

/// Calls use(number, line, is_whole) for every line of a text file, counted from 1, without its end;
/// is_whole: it has one. A file that is not there has no lines.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, const std::string& line, bool is_whole)>& use);

/// Makes names created, renamed or removed in a folder durable.
void sync_folder(const std::filesystem::path& folder);

struct FolderEntry {
  std::string name;
  bool is_folder;      ///< also of a link to one
  bool leads_nowhere;  ///< a link to what is not there, or to itself
};

/// All that is in `folder`, sorted by name, byte by byte. Throws DataError when it cannot be listed.
std::vector<FolderEntry> list_folder(const std::filesystem::path& folder);

/// The names of all that is in `folder`, likewise; none if it does not exist.
std::vector<std::string> entry_names(const std::filesystem::path& folder);

/// The files in `folder` whose names match `pattern` as fnmatch(3) does it (*, ?, [abc], \ before a character
/// that stands for itself; a leading . only matches itself), sorted by name, byte by byte. Folders are left
/// out, and nothing below them is looked at: a pattern with a / matches nothing. Empty where nothing matches.
/// Throws DataError when the folder cannot be listed.
std::vector<std::filesystem::path> files_matching(const std::filesystem::path& folder,
                                                  const std::string& pattern);

/// Size and XXH3-128 of a file (spec/hash.h).
struct FileDigest {
  int64_t bytes = 0;
  std::string xxh3_128;

  bool operator==(const FileDigest&) const = default;
};

/// Reads the file once, through a small buffer. Progress is reported in bytes. Throws DataError.
FileDigest digest_file(const std::filesystem::path& path, const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
