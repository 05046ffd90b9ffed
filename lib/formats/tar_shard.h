#pragma once

// Uncompressed tar files of JPEG, PNG and WebP images in WebDataset's naming: members with the same name up
// to the first dot after the last slash (the key) are one sample. Members whose name, or a folder's, begins
// with a dot are no samples: macOS adds them.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "formats/on_problem.h"
#include "io/file.h"

namespace sdp {

/// A file in a tar file, or a link to one, which has that file's position.
struct TarEntry {
  std::string name;
  int64_t offset_bytes;       ///< of its first header in the tar file
  int64_t data_offset_bytes;  ///< of its data in the tar file
  int64_t size_bytes;
};

/// Position of a member, for messages: "FILE: member NAME at offset N".
std::string place_of(const std::filesystem::path& shard, const TarEntry& member);

/// The first bytes of a member's data, at most `most_bytes`; `file` is the shard.
std::vector<uint8_t> read_member(const InputFile& file, const TarEntry& member,
                                 int64_t most_bytes = std::numeric_limits<int64_t>::max());

/// The regular files in a tar file and the links to them, in order; reads only their headers. Throws
/// DataError if the file cannot be read, is damaged, lacks tar's end mark (two zero blocks), as a truncated
/// file does, or contains a link to what is not in it.
std::vector<TarEntry> list_tar(const std::filesystem::path& shard);

struct ImageEntry {
  TarEntry image;
  int64_t label;
};

/// The samples of a shard, in the order of their images, members named as one that is read (is_image_name()).
/// The label is the text of the member with the image's name and the extension cls, else of KEY.cls or, in a
/// shard without any .cls, the name of the folder that contains the image (3/00012.jpg). KEY.depth.jpg beside
/// KEY.jpg, without a label of its own, and KEY.png beside KEY.jpg are other fields of that sample. Problems
/// are a label that is missing or not a number in 0..num_classes-1, two images with the same label member,
/// and a key without an image that has a label or an image in another format or under another name; if
/// `on_problem` returns, the sample is left out. Throws the DataErrors of list_tar().
std::vector<ImageEntry> list_image_shard(const std::filesystem::path& shard, int64_t num_classes,
                                         const OnProblem& on_problem);

struct LabelledImage : ImageEntry {
  std::vector<uint8_t> data;
};

/// The same, with the files' contents; throws for every problem.
std::vector<LabelledImage> read_image_shard(const std::filesystem::path& shard, int64_t num_classes);

}  // namespace sdp
