#pragma once

// The tensors of a checkpoint's files: their names, their types, and a file that they are written into.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "io/on_progress.h"
#include "io/safetensors.h"
#include "subnet/plan.h"
#include "subnet/slot_map.h"

namespace sdp {

/// A unit's part of a parameter (or buffer). Parameters that are not divided have the hidden range [0, 0).
struct StateKey {
  std::string kind;
  std::string parameter;
  int64_t hidden_begin = 0;
  int64_t hidden_end = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): false alarm of clang-tidy 14
  auto operator<=>(const StateKey&) const = default;
};

inline constexpr const char* kValueKind = "value";
inline constexpr const char* kBufferKind = "buffer";

/// The kind of a worker's own state, with local steps: KIND@WORKER.
std::string kind_of(const std::string& kind, int worker);

StateKey key_of(const SubnetPlan& plan, const std::string& kind, const std::string& name, int unit);
StateKey key_of(const SubnetPlan& plan, const StateRange& range);
StateKey buffer_key(const SubnetPlan& plan, int buffer, int unit);

/// Name of elements [begin, end) of the part.
std::string range_name(const StateKey& key, int64_t begin, int64_t end);
std::string buffer_name(const StateKey& key, Slot slot);

struct ParsedName {
  StateKey key;
  int64_t first = 0;  ///< first element, or worker
  int64_t second = 0;
};
/// Throws DataError for an invalid name.
ParsedName parse_name(const std::string& name);

DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type_of(DType type);
/// The memory-mapped tensor itself: read-only.
at::Tensor as_tensor(const TensorView& view);

/// A safetensors file whose tensors are computed one at a time, as they are written.
class TensorFile {
 public:
  /// `source` returns the tensor, of this type and number of elements, on any device.
  void add(const std::string& name, DType type, std::vector<int64_t> shape,
           std::function<at::Tensor()> source);
  /// Throws DataError if writing fails. Progress is reported in bytes.
  FileDigest write(const std::filesystem::path& path, const TensorMetadata& metadata,
                   const OnProgress& on_progress = ignore_progress);

 private:
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::function<at::Tensor()>> sources_;
};

}  // namespace sdp
