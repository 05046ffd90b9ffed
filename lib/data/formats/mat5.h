#pragma once

// MATLAB's MAT-files of version 5 (MathWorks, "MAT-File Format",
// https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf, chapter 1), as far as images need them:
// little-endian files of real uint8 arrays, compressed or not.
//
// libmatio is not used: for a truncated or damaged file it returns an array of the right size with wrong
// pixels, because it checks neither the end nor the checksum of compressed data. It also allocates whatever
// size a file states, and it requires HDF5. Checking all this before calling it would amount to this reader.

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

/// A uint8 array of an open file, whose values are read once, in order.
class Mat5Array {
 public:
  const std::string& name() const { return name_; }
  const std::vector<int64_t>& dimensions() const { return dimensions_; }
  int64_t numel() const;
  /// Position of the variable, for messages: "FILE: variable X at offset 128".
  std::string place() const;

  /// The next values, in column-major order: the first dimension varies fastest. Throws DataError if the data
  /// is damaged, std::logic_error if fewer values are left.
  void read(std::span<uint8_t> values);
  /// Call after the last value: throws DataError if the variable does not end there, or if the checksum of
  /// compressed data is wrong.
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
  uint32_t padding_ = 0;  // after the values
};

class Mat5File {
 public:
  /// Checks the file's header and the tags and headers of all variables. Throws DataError.
  explicit Mat5File(const std::filesystem::path& path);

  /// Throws DataError unless exactly one variable has that name. The file must outlive the result.
  Mat5Array open(std::string_view name) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::vector<std::pair<std::string, size_t>> offset_of_;
};

}  // namespace sdp
