#pragma once

// Uncompressed tar files of JPEG images in WebDataset's naming: members with the same name up to the first
// dot after the last slash (the key) are one sample.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sdp {

struct TarMember {
  std::string name;
  int64_t offset_bytes;  ///< of the member's header in the tar file
  std::vector<uint8_t> data;
};

/// Where a member is, for messages: "FILE: member NAME at offset N".
std::string place_of(const std::filesystem::path& shard, const TarMember& member);

/// The regular files in a tar file, in its order. Throws DataError when it can't be read, is damaged, or ends
/// without tar's end mark (two zero blocks), as a truncated file does.
std::vector<TarMember> read_tar(const std::filesystem::path& shard);

struct LabelledJpeg {
  TarMember jpeg;
  int64_t label;
};

/// The samples of a shard, in order of their KEY.jpg (or .jpeg) members; other members are ignored. The label
/// is the text of KEY.cls or, in a shard without any .cls, the name of the folder that holds the image
/// (3/00012.jpg). Throws DataError when a label is missing, is not a number in 0..num_classes-1, or a key
/// occurs twice.
std::vector<LabelledJpeg> read_jpeg_shard(const std::filesystem::path& shard, int64_t num_classes);

}  // namespace sdp
