#pragma once

// Weights as saved by torchvision and transformers: the tensors of a model in one or several safetensors
// files.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "model/library_format.h"
#include "model/model_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// The safetensors files that `from` stands for: a file itself; for a folder, the files listed in
/// model.safetensors.index.json (used by the Hugging Face hub for large models), else model.safetensors, else
/// the only safetensors file. Throws DataError if there is none; for a file written by torch.save, the
/// message says how to convert it.
std::vector<std::filesystem::path> library_files(const std::filesystem::path& from);

/// config.json beside the weights `from`, whether it exists or not. `from`: a file, or its folder.
std::filesystem::path config_beside(const std::filesystem::path& from);

/// Folder in the run folder with what an import keeps of the files beside the weights, for an export.
inline constexpr const char* kImportedFolder = "imported";

/// Throws DataError unless the file holds a JSON object.
nlohmann::ordered_json read_json_object(const std::filesystem::path& path);

/// The tensors of a layout, in files with the library's tensor names.
class LibraryTensors {
 public:
  /// Opens the files of `from` (library_files). A single DataError lists all tensors that are missing, have
  /// the wrong shape, are not of a floating-point type, are not finite, differ from the parameter that they
  /// should repeat, or are neither in the layout nor in `made_anew` nor redundant to the library. `type`: the
  /// type to read them as. `format`: the library's naming; null: the layout's names. `head`: the parameters
  /// of the head; with `reads_head` false they may have any shape or be missing, and are not to be read.
  LibraryTensors(const std::filesystem::path& from, const ModelLayout& layout,
                 std::unique_ptr<LibraryFormat> format, at::ScalarType type,
                 const std::map<std::string, at::Tensor>& made_anew, std::set<std::string> head,
                 bool reads_head);

  /// Whether the parameter is to be read; otherwise it is one of the head that is drawn anew.
  bool has(const std::string& name) const { return reads_head_ || !head_.contains(name); }
  at::Tensor read(const std::string& name) const;
  /// What stands before the names of the model's tensors in the files, because the model was a part of
  /// another module: "module." of DistributedDataParallel, "_orig_mod." of torch.compile, "model." of many
  /// programs, or several. Elsewhere the names are without it. Empty: it was not.
  const std::string& wrapper() const { return wrapper_; }
  /// torchvision's num_batches_tracked, one for all BatchNorm layers; 0 if there is none. Throws DataError if
  /// it is not a count.
  int64_t batch_norm_updates() const;

 private:
  const TensorView* find(const std::string& name) const;
  /// The faults of the tensors that are not `used`: that one should repeat a parameter
  /// (LibraryFormat::repeated_by) but differs from it, or would be lost.
  std::vector<std::string> check_others(const std::set<std::string>& used,
                                        const std::map<std::string, at::Tensor>& made_anew) const;
  /// The fault of the tensor; empty if there is none.
  std::string problem_of(const std::string& name, const std::vector<int64_t>& shape) const;

  std::filesystem::path from_;
  std::vector<SafetensorsFile> files_;
  std::unique_ptr<LibraryFormat> format_;
  at::ScalarType type_;
  std::set<std::string> head_;
  bool reads_head_;
  std::string wrapper_;
};

// Tensors of a library's state dict besides parameters and statistics.

/// int64 tensors by name: the model's constants, and torchvision's count of BatchNorm updates
/// (num_batches_tracked).
LibraryConstants library_tensors(const ModelSpec& spec, const ModelLayout& layout,
                                 int64_t batch_norm_updates);

}  // namespace sdp
