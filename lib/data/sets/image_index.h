#pragma once

// The list of a data set's encoded images, compact enough for millions of them, and its copy on disk, which
// saves listing every folder and shard each time the data set is opened.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/tar_shard.h"
#include "io/on_progress.h"

namespace sdp {

/// A folder of images or a shard, and what changes when its contents do.
struct ImageGroup {
  std::string name;    ///< in the folder of the groups
  int64_t size_bytes;  ///< of a shard; 0 for a folder
  int64_t changed_ns;  ///< time of the last change, of std::filesystem's clock

  bool operator==(const ImageGroup&) const = default;
};

/// Reads size and time of FOLDER/NAME. Throws DataError.
ImageGroup group_of(const std::filesystem::path& folder, const std::string& name);

/// Images by number, in the order they were added. In memory and on disk: the name and 8 bytes per image, in
/// shards 24.
class ImageIndex {
 public:
  /// What is added from here on is in this group.
  void begin_group(const ImageGroup& group);
  /// An image that is a file of its own.
  void add_file(std::string_view name, int64_t label);
  static constexpr int64_t kMostMemberBytes = std::numeric_limits<uint32_t>::max();
  /// An image in a shard, of at most kMostMemberBytes. An index has files or members, not both.
  void add_member(const TarEntry& member, int64_t label);
  /// A group of another index, with its images.
  void add_group(const ImageIndex& other, size_t group);

  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t image) const { return labels_[static_cast<size_t>(image)]; }
  std::string_view name(int64_t image) const;
  /// Of an image in a shard.
  TarEntry member(int64_t image) const;
  /// Number of the group of an image.
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

  void add(std::string_view name, int64_t label);
  /// Whether the vectors below belong together, so that each image has all that it can be asked for.
  bool is_consistent(int64_t num_classes) const;
  /// Whether images in shards lie within them.
  bool has_places() const;

  std::vector<ImageGroup> groups_;
  std::vector<int64_t> first_images_;  // of the groups
  std::string names_;                  // of all images, one after the other
  std::vector<uint32_t> name_ends_;    // in names_
  std::vector<int32_t> labels_;
  std::vector<Member> members_;  // empty where images are files
};

/// The copy of an index on disk. `contents` says what is listed beside the groups themselves: an index that
/// was saved with other contents is not used. Labels are in 0..num_classes-1.
class IndexFile {
 public:
  IndexFile(std::filesystem::path path, std::string contents, int64_t num_classes);

  /// Nothing where the file is missing, damaged, another version's or of other contents.
  std::optional<ImageIndex> load() const;
  /// Replaces the file whole; several processes may. Throws DataError where it cannot be written, and leaves
  /// no other file behind: what a process left that was killed, a later call removes.
  void save(const ImageIndex& index) const;

 private:
  /// use(array) with each of an index's arrays behind its groups, in the order of the file.
  template <class Index, class Use>
  static void visit_arrays(Index& index, const Use& use);

  std::filesystem::path path_;
  std::string contents_;
  int64_t num_classes_;
};

/// The index of `groups`: out of the file where a group is as it was, otherwise out of `list`, which adds the
/// images of a group that was begun. Saved where it changed; a file that cannot be written is no error,
/// `note` then says why. `list` returns false where it met problems: they are not to be hidden by a saved
/// index. Progress is told in groups.
ImageIndex update_index(const IndexFile& file, const std::vector<ImageGroup>& groups,
                        const std::function<bool(const ImageGroup&, ImageIndex&)>& list, std::string& note,
                        const OnProgress& on_progress = ignore_progress);

}  // namespace sdp
