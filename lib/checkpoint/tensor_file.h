#pragma once

// A safetensors file whose tensors are computed one at a time, as they are written.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/files/safetensors.h"
#include "io/on_progress.h"

namespace sdp {

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
