#pragma once

// The list of a data set's encoded images, compact enough for millions of them. It is saved on disk, so that
// folders and shards need not be listed each time the data set is opened.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tar_shard.h"
#include "io/on_progress.h"

namespace sdp {

/// A folder of images or a shard, and attributes that change with its contents.
struct ImageGroup {
  std::string name;    ///< relative to the folder of the groups
  int64_t size_bytes;  ///< of a shard; 0 for a folder
  int64_t changed_ns;  ///< time of the last change, by std::filesystem's clock

  bool operator==(const ImageGroup&) const = default;
};

/// Reads size and time of FOLDER/NAME. Throws DataError.
ImageGroup group_of(const std::filesystem::path& folder, const std::string& name);

/// Images by number, in the order they were added. In memory and on disk, an image takes its name plus 8
/// bytes, or 24 in shards.
class ImageIndex {
 public:
  /// Images added from here on belong to this group.
  void begin_group(const ImageGroup& group);
  /// Adds an image in a file of its own.
  void add_file(std::string_view name, int64_t label);
  static constexpr int64_t kMostMemberBytes = std::numeric_limits<uint32_t>::max();
  /// Adds an image in a shard, of at most kMostMemberBytes. An index has either files or members.
  void add_member(const TarEntry& member, int64_t label);
  /// Adds a group of another index with its images.
  void add_group(const ImageIndex& other, size_t group);

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t image) const { return labels_[static_cast<size_t>(image)]; }
  std::string_view name(int64_t image) const;
  /// For an image in a shard.
  TarEntry member(int64_t image) const;
  /// Number of an image's group.
  size_t group(int64_t image) const;
  const std::vector<ImageGroup>& groups() const { return groups_; }

  bool operator==(const ImageIndex&) const = default;

 private:
  friend class IndexFile;

  struct Member {
    int64_t data_offset_bytes;
    uint32_t header_bytes;
    uint32_t size_bytes;
    bool operator==(const Member&) const = default;
  };

  /// Whether the vectors below are consistent, so that every image can be accessed.
  bool is_consistent(int64_t num_classes) const;
  /// Whether images in shards lie within them.
  bool has_places() const;

  std::vector<ImageGroup> groups_;
  std::vector<int64_t> first_images_;  // of the groups
  std::string names_;                  // of all images, one after the other
  std::vector<uint32_t> name_ends_;    // end offsets in names_
  std::vector<int32_t> labels_;
  std::vector<Member> members_;  // empty if images are files
};

/// The saved index on disk. `contents` describes what the index lists besides the groups themselves: an index
/// saved with other contents is not used. Labels are in 0..num_classes-1.
class IndexFile {
 public:
  IndexFile(std::filesystem::path path, std::string contents, int64_t num_classes);

  /// std::nullopt if the file is missing, damaged, of another version or with other contents.
  std::optional<ImageIndex> load() const;
  /// Replaces the file atomically; several processes may do so at the same time. Throws DataError if it
  /// cannot be written. Leaves no other files: those left by killed processes are removed by later calls.
  void save(const ImageIndex& index) const;

 private:
  /// Calls use(array) with each of the index's arrays that follow its groups, in file order.
  template <class Index, class Use>
  static void visit_arrays(Index& index, const Use& use);

  std::filesystem::path path_;
  std::string contents_;
  int64_t num_classes_;
};

/// The index of `groups`: from the file for unchanged groups, otherwise from `list`, which adds the images of
/// a group that was begun. Saved if it changed; if the file cannot be written, `note` says why, without an
/// error. `list` returns false if there were problems, so that a saved index does not hide them. Progress is
/// reported in groups.
ImageIndex update_index(const IndexFile& file, const std::vector<ImageGroup>& groups,
                        const std::function<bool(const ImageGroup&, ImageIndex&)>& list, std::string& note,
                        const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
