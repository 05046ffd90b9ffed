#pragma once

// ImageNet's encoded images, in one folder per class or in tar shards.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/image_index.h"

namespace sdp {

/// Labelled files, read into memory one at a time. All methods are const and thread-safe.
class ImageFiles {
 public:
  ImageFiles(ImageIndex index, int64_t num_classes) : index_(std::move(index)), num_classes_(num_classes) {}
  virtual ~ImageFiles() = default;

  const ImageIndex& index() const { return index_; }
  int64_t num_classes() const { return num_classes_; }
  /// For messages: the path, or "SHARD: member NAME at offset N".
  virtual std::string place(int64_t image) const = 0;
  /// Throws DataError.
  virtual std::vector<uint8_t> read(int64_t image) const = 0;

 private:
  ImageIndex index_;
  int64_t num_classes_;
};

/// Path of the saved index, a note about it, and the receiver of progress reports.
struct IndexOptions {
  std::filesystem::path path;
  std::string& note;  ///< why the index could not be saved, and what is not read
  OnProgress on_progress = ignore_progress;
};

/// FOLDER/train; FOLDER/val or, if only that exists, FOLDER/test.
std::filesystem::path folder_of_split(const std::filesystem::path& folder, Split split);

/// The class folders of FOLDER/train or, if that does not exist, of the test set, by name. Empty if there are
/// none.
std::vector<std::string> class_names_in(const std::filesystem::path& folder);

/// The images in the class folders of folder_of_split() (any name that is_image_name()), in the order of
/// torchvision's ImageFolder: classes by name, with the labels 0, 1, ..., and files by name in each. Classes
/// are the folders of train/ if it exists, and the test set must have the same. Images that are not read,
/// because of their format, their name or a folder below the class's, are problems. Names that begin with a
/// dot, which macOS adds, are not looked at.
std::unique_ptr<ImageFiles> open_class_folders(const std::filesystem::path& folder, Split split,
                                               const IndexOptions& index, const OnProblem& on_problem);

/// Images of tar shards (tar_shard.h) in the given order, labels 0..num_classes-1. They are read directly
/// from the shards.
std::unique_ptr<ImageFiles> open_shards(const std::vector<std::filesystem::path>& shards, int64_t num_classes,
                                        const IndexOptions& index, const OnProblem& on_problem);

}  // namespace sdp
