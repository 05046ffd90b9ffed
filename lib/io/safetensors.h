#pragma once

// The safetensors format (https://huggingface.co/docs/safetensors): 8 bytes of header length (little-endian),
// a JSON header {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}, then the tensors'
// bytes, row-major, little-endian, without holes. The header is padded with spaces so that the data starts at
// a multiple of 8.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/file.h"
#include "spec/hash.h"

namespace sdp {

enum class DType { kF64, kF32, kBF16, kF16, kI64, kI32, kU8, kBool };

/// Bytes of one element.
int64_t element_bytes(DType dtype);
/// The format's name of a type: F64, F32, BF16, F16, I64, I32, U8, BOOL.
std::string_view dtype_name(DType dtype);

struct TensorEntry {
  std::string name;  ///< UTF-8
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  ///< empty: a scalar

  /// Throws std::logic_error for a negative dimension or a size beyond int64.
  int64_t bytes() const;

  bool operator==(const TensorEntry&) const = default;
};

/// Size of a tensor in bytes; std::nullopt for a negative dimension or a size beyond int64.
std::optional<int64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape);

using TensorMetadata = std::map<std::string, std::string>;

/// Sorts entries in the order that SafetensorsWriter expects: wider elements first, otherwise unchanged.
/// Readers that map the file, such as PyTorch's, need every tensor at a multiple of its element size.
void sort_for_writing(std::vector<TensorEntry>& entries);

/// Writes a file as its data becomes available. The constructor writes the header. The destructor removes a
/// file that was not finished.
///
/// Throws DataError if writing fails, std::logic_error for entries that are not in the order of
/// sort_for_writing or repeat a name, and for data that does not match them.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries,
                    const TensorMetadata& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Appends to the current tensor, in whole or in part. A part must not extend into the next tensor.
  void write(std::span<const std::byte> data);
  /// Calls fsync. The digest covers the whole file.
  FileDigest finish();

 private:
  /// Writes nothing.
  SafetensorsWriter(std::vector<TensorEntry> entries, const std::filesystem::path& path);
  void skip_finished_tensors();

  std::vector<TensorEntry> entries_;
  size_t current_ = 0;         // tensor that the next byte belongs to
  int64_t current_bytes_ = 0;  // number of its bytes written so far
  FileDigest digest_;
  Xxh3 hash_;
  OutputFile file_;
  bool finished_ = false;
};

/// A tensor of an open file. `data` points into the mapped file and is valid during the lifetime of the
/// SafetensorsFile. It is aligned to its element size if the file's writer aligned it.
struct TensorView {
  TensorEntry entry;
  std::span<const std::byte> data;
};

/// A file mapped read-only. The constructor checks everything that the format requires: header length, JSON,
/// unique names, known types, sizes that match shapes, data without overlaps, holes or trailing bytes. Throws
/// DataError with the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// In the order of their data.
  const std::vector<TensorView>& entries() const { return entries_; }
  const TensorMetadata& metadata() const { return metadata_; }
  /// Null if there is no tensor with that name.
  const TensorView* find(std::string_view name) const;

 private:
  MappedFile file_;
  std::vector<TensorView> entries_;
  TensorMetadata metadata_;
  std::unordered_map<std::string_view, size_t> by_name_;  // views into entries_, whose heap block never moves
};

// Constants shared by the reader and the writer of safetensors.

inline constexpr int64_t kLengthBytes = 8;               ///< of the header length at the start of the file
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  ///< the reference implementation's limit
inline constexpr std::string_view kMetadataKey = "__metadata__";

}  // namespace sdp
