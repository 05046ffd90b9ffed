#include <xxhash.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "data/image_index.h"
#include "fixtures.h"
#include "formats.h"
#include "io/file.h"
#include "oracle.h"

namespace sdp::fuzz {

namespace {

namespace fs = std::filesystem;
using namespace sdp::testing;

constexpr int64_t kClasses = 10;

/// The file clock's epoch is in 2174; recently changed files would be listed again.
constexpr int64_t kLongAgo = -8'000'000'000'000'000'000;

/// The current state of a data set.
struct Listed {
  std::string contents;
  std::vector<ImageGroup> groups;
};

Listed folders() {
  return {"class folders cat/dog", {{"cat", 0, kLongAgo + 1}, {"dog", 0, kLongAgo + 2}}};
}

Listed shards() {
  return {"shards of 10 classes",
          {{"train-0.tar", 9216, kLongAgo + 3},
           {"train-1.tar", 10240, kLongAgo + 4},
           {"train-2.tar", 5120, kLongAgo + 5}}};
}

bool holds_members(const ImageGroup& group) {
  return group.size_bytes > 0;
}

/// Adds three images, whose names and labels depend on the group.
void list_group(const ImageGroup& group, ImageIndex& index) {
  for (int64_t image = 0; image < 3; ++image) {
    const std::string name = group.name + std::string(static_cast<size_t>(image), 'x') + ".jpg";
    const int64_t label = group.changed_ns - kLongAgo + image;
    const TarEntry member{
        .name = name, .offset_bytes = 2048 * image, .data_offset_bytes = 2048 * image + 512, .size_bytes = 7};
    holds_members(group) ? index.add_member(member, label) : index.add_file(name, label);
  }
}

ImageIndex list_all(const Listed& listed) {
  ImageIndex index;
  for (const ImageGroup& group : listed.groups) {
    index.begin_group(group);
    list_group(group, index);
  }
  return index;
}

std::string saved(const Listed& listed) {
  const TempFolder folder;
  IndexFile(folder.path() / "train.sdp-index", listed.contents, kClasses).save(list_all(listed));
  return read_text(folder.path() / "train.sdp-index");
}

std::vector<std::string> index_seeds() {
  Listed older = shards();
  older.groups[1].changed_ns = kLongAgo;
  return {saved(folders()), saved(shards()), saved(older)};
}

/// Calls everything that the rest of the program uses. An index with wrong contents must still be consistent.
void look_at(const ImageIndex& index) {
  for (int64_t image = 0; image < index.size(); ++image) {
    require(index.group(image) < index.groups().size(), "an image outside of the groups");
    use(std::as_bytes(std::span(index.name(image))));
    require(index.label(image) >= 0 && index.label(image) < kClasses, "a label beyond the classes");
    if (!holds_members(index.groups()[index.group(image)])) continue;
    const TarEntry member = index.member(image);
    require(member.offset_bytes >= 0 && member.data_offset_bytes >= member.offset_bytes &&
                member.data_offset_bytes + member.size_bytes <= index.groups()[index.group(image)].size_bytes,
            "no place in the file");
  }
}

/// The index of a data set; `used`: part of it comes from the saved one. It is not saved again.
ImageIndex update(const fs::path& file, const Listed& listed, bool& used) {
  size_t groups = 0;
  std::string note;
  const auto list = [&](const ImageGroup& group, ImageIndex& index) {
    list_group(group, index);
    ++groups;
    return false;  // reports a problem, so that nothing is saved
  };
  ImageIndex index = update_index(IndexFile(file, listed.contents, kClasses), listed.groups, list, note);
  used |= groups < listed.groups.size();
  return index;
}

/// A damaged index is rebuilt; whether it is used or not, the list is the same as without an index.
void read_index(const fs::path& file) {
  bool used = false;
  for (const Listed& listed : {folders(), shards()})
    require(update(file, listed, used) == list_all(listed), "a damaged index is believed");
  if (!used) throw DataError("made anew");
}

std::string repair_index(std::string bytes) {
  constexpr size_t kMagicBytes = 8;
  constexpr size_t kFrameBytes = kMagicBytes + sizeof(uint64_t);
  if (bytes.size() < kFrameBytes) return bytes;
  const uint64_t hash = XXH3_64bits(bytes.data() + kFrameBytes, bytes.size() - kFrameBytes);
  std::memcpy(bytes.data() + kMagicBytes, &hash, sizeof hash);
  return bytes;
}

/// An index with a corrected checksum may have other contents, but must not cause reads outside of it.
void read_forged_index(const fs::path& file) {
  bool used = false, is_updated = false;
  for (const Listed& listed : {folders(), shards()}) {
    if (const std::optional<ImageIndex> index = IndexFile(file, listed.contents, kClasses).load()) {
      look_at(*index);
      used = true;
    }
    look_at(update(file, listed, is_updated));
  }
  if (!used) throw DataError("not an index");
}

// In the first seed: checksum, length of the contents, number of groups, length of the first group's name.
constexpr std::array<size_t, 4> kFields = {8, 16, 45, 53};

}  // namespace

std::vector<Format> image_index_formats() {
  return {
      {"image_index", "train.sdp-index", {90, kFields}, index_seeds, read_index},
      {"image_index_forged", "train.sdp-index", {90, kFields}, index_seeds, read_forged_index, repair_index},
  };
}

}  // namespace sdp::fuzz
