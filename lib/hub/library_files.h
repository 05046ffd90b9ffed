#pragma once

// Weights as torchvision and transformers save them: the tensors of a model in one or several safetensors
// files.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/files/safetensors.h"
#include "model/library_format.h"
#include "subnet/layout.h"

namespace sdp {

/// The safetensors files that `from` stands for: itself; of a folder those that model.safetensors.index.json
/// lists (the Hugging Face hub's form of large models), else model.safetensors, else the only one there is.
/// DataError where there is none; a file that torch.save has written is named as one, with what converts it.
std::vector<std::filesystem::path> library_files(const std::filesystem::path& from);

/// The tensors of a layout in files of the library that the names come from.
class LibraryTensors {
 public:
  /// Opens the files of `from` (library_files). One DataError tells all tensors that are missing, have
  /// another shape, are not of a floating-point type or not finite. `type`: that they are read as.
  /// `format`: how the library names them; null: as the layout does.
  LibraryTensors(const std::filesystem::path& from, const ModelLayout& layout,
                 std::unique_ptr<LibraryFormat> format, at::ScalarType type);

  at::Tensor read(const std::string& name) const;
  /// What is neither in the layout nor in `made_anew`, nor redundant to the library.
  std::vector<std::string> unused(const std::map<std::string, at::Tensor>& made_anew) const;
  /// torchvision's num_batches_tracked, one for all BatchNorms; 0 where there is none. DataError where it is
  /// no count.
  int64_t batch_norm_updates() const;

 private:
  const TensorView* find(const std::string& name) const;
  /// What is wrong with the tensor; empty where nothing is.
  std::string problem_of(const std::string& name, const std::vector<int64_t>& shape) const;

  std::filesystem::path from_;
  std::vector<SafetensorsFile> files_;
  std::unique_ptr<LibraryFormat> format_;
  at::ScalarType type_;
  std::set<std::string> used_;  ///< by their names in the files
};

}  // namespace sdp
