#pragma once

// MATLAB's MAT-files of version 5 (MathWorks, "MAT-File Format",
// https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf, chapter 1), as far as images need them:
// little-endian files of real uint8 arrays, compressed or not.
//
// Why not libmatio: it gives a truncated or damaged file back as an array of the right size, with other
// pixels, because it goes by neither the end nor the checksum of compressed data, it allocates whatever size
// a file states, and it cannot be linked without HDF5. Checking all that in front of it would be this reader.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"

namespace sdp {

class Mat5Stream;

/// A uint8 array of an open file, whose values are read once, from the first to the last.
class Mat5Array {
 public:
  const std::string& name() const { return name_; }
  const std::vector<int64_t>& dimensions() const { return dimensions_; }
  int64_t numel() const;
  /// Where the variable is, for messages: "FILE: variable X at offset 128".
  std::string place() const;

  /// The next values, in column-major order: the first dimension is the fastest. Throws DataError where the
  /// data is damaged, std::logic_error for more values than are left.
  void read(std::span<uint8_t> values);
  /// Call after the last value: throws DataError where the variable does not end with it, or its checksum (of
  /// compressed data) is wrong.
  void finish();

  ~Mat5Array();
  Mat5Array(Mat5Array&&) noexcept;
  Mat5Array& operator=(Mat5Array&&) noexcept;

 private:
  friend class Mat5File;
  Mat5Array(const std::filesystem::path& path, std::span<const uint8_t> file, size_t offset);

  void read_header();
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path path_;
  int64_t offset_bytes_;
  std::unique_ptr<Mat5Stream> stream_;
  std::string name_;
  std::vector<int64_t> dimensions_;
  int64_t values_left_ = 0;
  uint32_t padding_ = 0;  // behind the values
};

class Mat5File {
 public:
  /// Checks the file's header and the tags of all variables, their own headers too. Throws DataError.
  explicit Mat5File(const std::filesystem::path& path);

  /// Throws DataError where there is no variable of that name or several are. The file must outlive it.
  Mat5Array open(std::string_view name) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::vector<std::pair<std::string, size_t>> offset_of_;
};

}  // namespace sdp
