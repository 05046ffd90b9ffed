#include <xxhash.h>

#include <cstring>

#include "catch.h"
#include "data/sets/image_index.h"
#include "fixtures.h"
#include "io/file.h"

using namespace sdp;
using namespace sdp::testing;

// Whether an index is used or rebuilt is tested with the data set, in test_imagenet.cpp.

namespace {

/// Three images in two groups.
ImageIndex small_index(bool in_shards) {
  ImageIndex index;
  const int64_t size_bytes = in_shards ? 4096 : 0;
  const auto add = [&](const std::string& name, int64_t label) {
    if (in_shards)
      index.add_member({.name = name, .offset_bytes = 512, .data_offset_bytes = 1024, .size_bytes = 9},
                       label);
    else
      index.add_file(name, label);
  };
  index.begin_group({.name = "a", .size_bytes = size_bytes, .changed_ns = 1});
  add("one", 0);
  add("two", 0);
  index.begin_group({.name = "b", .size_bytes = size_bytes, .changed_ns = 2});
  add("three", 1);
  return index;
}

class SavedIndex {
 public:
  explicit SavedIndex(bool in_shards) {
    file_.save(small_index(in_shards));
    bytes_ = read_text(path_);
  }
  size_t size() const { return bytes_.size(); }
  /// The index that is loaded after the byte at `at` is replaced and the checksum is corrected.
  std::optional<ImageIndex> with(size_t at, int byte) const {
    std::string forged = bytes_;
    forged[at] = static_cast<char>(byte);
    const uint64_t hash = XXH3_64bits(forged.data() + 16, forged.size() - 16);
    std::memcpy(forged.data() + 8, &hash, sizeof hash);
    folder_.write("index", forged);
    return file_.load();
  }

 private:
  TempFolder folder_;
  std::filesystem::path path_ = folder_.path() / "index";
  IndexFile file_{path_, "contents", /*num_classes=*/2};
  std::string bytes_;
};

}  // namespace

TEST_CASE("an index is loaded as it was saved", "[data]") {
  for (const bool in_shards : {false, true}) {
    const SavedIndex saved(in_shards);
    CHECK(saved.with(0, 'S') == small_index(in_shards));
    CHECK(saved.with(0, 'T') == std::nullopt);
  }
}

TEST_CASE("an index whose parts contradict each other is not loaded, even if its checksum is right",
          "[data]") {
  // The end of the file; each part is preceded by its number of elements in 8 bytes: 2 first images, 11
  // letters of names, 3 ends of names, 3 labels, members.
  const SavedIndex files(false);
  const size_t members = files.size() - 8;
  const size_t labels = members - 12;
  const size_t name_ends = labels - 8 - 12;
  const size_t first_images = name_ends - 8 - 11 - 8 - 16;
  CHECK(files.with(labels, 1));                                // allowed
  CHECK(files.with(labels, 2) == std::nullopt);                // beyond the classes
  CHECK(files.with(labels + 3, 0x80) == std::nullopt);         // negative
  CHECK(files.with(name_ends, 4));                             // allowed
  CHECK(files.with(name_ends, 7) == std::nullopt);             // after the second name's end
  CHECK(files.with(name_ends + 8, 12) == std::nullopt);        // after the last letter
  CHECK(files.with(first_images, 1) == std::nullopt);          // an image in no group
  CHECK(files.with(first_images + 8, 4) == std::nullopt);      // no such image
  CHECK(files.with(first_images + 15, 0x80) == std::nullopt);  // negative

  // The same with 3 members of 16 bytes: their beginning, the length of their headers, their size.
  const SavedIndex shards(true);
  const size_t first_member = shards.size() - 48;
  CHECK(shards.with(first_member + 1, 3));                   // 1024 - 256: allowed
  CHECK(shards.with(first_member + 1, 1) == std::nullopt);   // before its headers
  CHECK(shards.with(first_member + 1, 15));                  // up to the shard's end: 3840 + 9 of 4096
  CHECK(shards.with(first_member + 1, 16) == std::nullopt);  // beyond it
  CHECK(shards.with(first_member + 15, 1) == std::nullopt);  // 16 MiB
  // A group's size, which follows its name, says whether the group is a shard.
  const size_t size_of_a = 16 + 8 + 8 + 8 + 8 + 1;
  CHECK(shards.with(size_of_a + 1, 0) == std::nullopt);  // a folder, next to a shard
  CHECK(files.with(size_of_a, 1) == std::nullopt);       // a shard, next to a folder
}
