#include "data/image_index.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "io/file.h"
#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

static_assert(std::endian::native == std::endian::little, "the file has the numbers as they are in memory");

// The file: magic, XXH3-64 of everything after it, then values as written by Writer.
constexpr std::string_view kMagic = "SDPIDX02";

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  /// The number of elements, then the elements.
  template <class Elements>
  void put_all(const Elements& elements) {
    put(static_cast<uint64_t>(elements.size()));
    bytes_.append(reinterpret_cast<const char*>(elements.data()),
                  elements.size() * sizeof(typename Elements::value_type));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Throws DataError past the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  void get(T& value) {
    copy(&value, 1, sizeof value);
  }
  template <class Elements>
  void get_all(Elements& elements) {
    uint64_t count = 0;
    get(count);
    if (count > bytes_.size()) throw DataError("too short");
    elements.resize(count);
    copy(elements.data(), count, sizeof(typename Elements::value_type));
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  void copy(void* target, uint64_t count, size_t element_bytes) {
    if (count > bytes_.size() / element_bytes) throw DataError("too short");
    if (count > 0) std::memcpy(target, bytes_.data(), count * element_bytes);
    bytes_.remove_prefix(count * element_bytes);
  }

  std::string_view bytes_;
};

std::string framed(const std::string& payload) {
  const uint64_t hash = XXH3_64bits(payload.data(), payload.size());
  Writer writer;
  writer.put(hash);
  return std::string(kMagic) + writer.bytes() + payload;
}

/// The argument of framed(); std::nullopt if the bytes are not a result of framed().
std::optional<std::string_view> payload_of(std::string_view file) {
  constexpr size_t kFrameBytes = kMagic.size() + sizeof(uint64_t);
  if (file.size() < kFrameBytes || !file.starts_with(kMagic)) return std::nullopt;
  uint64_t hash = 0;
  std::memcpy(&hash, file.data() + kMagic.size(), sizeof hash);
  file.remove_prefix(kFrameBytes);
  if (XXH3_64bits(file.data(), file.size()) != hash) return std::nullopt;
  return file;
}

/// Changes within one clock tick have the same time, so a group that changed just now may change again
/// unnoticed. It gets an impossible time.
ImageGroup settled(ImageGroup group) {
  constexpr int64_t kTickNs = 2'000'000'000;
  const int64_t listed_ns =
      std::chrono::nanoseconds(fs::file_time_type::clock::now().time_since_epoch()).count();
  if (group.changed_ns > listed_ns - kTickNs) group.changed_ns = std::numeric_limits<int64_t>::min();
  return group;
}

/// Removes files left by processes that were killed while saving `index`. No save takes an hour.
void remove_leftovers(const fs::path& index) {
  constexpr std::string_view kDigit = "[0-9a-f]";
  std::string pattern = index.filename().string() + ".";
  for (int digit = 0; digit < 8; ++digit)
    pattern += kDigit;
  const fs::path folder = index.has_parent_path() ? index.parent_path() : ".";
  for (const std::string_view ending : {"", ".tmp"})
    for (const fs::path& file : files_matching(folder, pattern + std::string(ending))) {
      std::error_code ignored;
      const auto changed = fs::last_write_time(file, ignored);
      if (!ignored && changed < fs::file_time_type::clock::now() - std::chrono::hours(1))
        fs::remove(file, ignored);
    }
}

}  // namespace

ImageGroup group_of(const fs::path& folder, const std::string& name) {
  const fs::path path = folder / name;
  std::error_code error;
  const auto changed = fs::last_write_time(path, error);
  const bool is_folder = !error && fs::is_directory(path, error);
  const auto size_bytes = error || is_folder ? 0 : static_cast<int64_t>(fs::file_size(path, error));
  if (error) throw_io_error("read", path, error.value());
  return {.name = name,
          .size_bytes = size_bytes,
          .changed_ns = std::chrono::nanoseconds(changed.time_since_epoch()).count()};
}

// ---- in memory ----

void ImageIndex::begin_group(const ImageGroup& group) {
  groups_.push_back(group);
  first_images_.push_back(size());
}

void ImageIndex::add_file(std::string_view name, int64_t label) {
  names_ += name;
  if (names_.size() > std::numeric_limits<uint32_t>::max())
    throw DataError(
        fmt::format("{}: the names of all images take more than 4 GiB. Shorten them or use fewer images.",
                    groups_.back().name));
  name_ends_.push_back(static_cast<uint32_t>(names_.size()));
  labels_.push_back(static_cast<int32_t>(label));
}

void ImageIndex::add_member(const TarEntry& member, int64_t label) {
  if (member.size_bytes > kMostMemberBytes) throw std::logic_error("ImageIndex: the member is too large");
  add_file(member.name, label);
  members_.push_back({.data_offset_bytes = member.data_offset_bytes,
                      .header_bytes = static_cast<uint32_t>(member.data_offset_bytes - member.offset_bytes),
                      .size_bytes = static_cast<uint32_t>(member.size_bytes)});
}

void ImageIndex::add_group(const ImageIndex& other, size_t group) {
  begin_group(other.groups_[group]);
  const bool is_last = group + 1 == other.groups_.size();
  const int64_t end = is_last ? other.size() : other.first_images_[group + 1];
  for (int64_t image = other.first_images_[group]; image < end; ++image) {
    add_file(other.name(image), other.label(image));
    if (!other.members_.empty()) members_.push_back(other.members_[static_cast<size_t>(image)]);
  }
}

std::string_view ImageIndex::name(int64_t image) const {
  const auto i = static_cast<size_t>(image);
  const uint32_t begin = i == 0 ? 0 : name_ends_[i - 1];
  return std::string_view(names_).substr(begin, name_ends_[i] - begin);
}

TarEntry ImageIndex::member(int64_t image) const {
  const Member& member = members_[static_cast<size_t>(image)];
  return {.name = std::string(name(image)),
          .offset_bytes = member.data_offset_bytes - member.header_bytes,
          .data_offset_bytes = member.data_offset_bytes,
          .size_bytes = member.size_bytes};
}

size_t ImageIndex::group(int64_t image) const {
  const auto after = std::ranges::upper_bound(first_images_, image);
  return static_cast<size_t>(after - first_images_.begin()) - 1;
}

bool ImageIndex::has_places() const {
  const auto is_shard = [](const ImageGroup& one) { return one.size_bytes > 0; };
  const auto shards = static_cast<size_t>(std::ranges::count_if(groups_, is_shard));
  if (shards == 0) return members_.empty();
  if (shards < groups_.size() || members_.size() != labels_.size()) return false;
  for (size_t image = 0; image < members_.size(); ++image) {
    const Member& member = members_[image];
    const int64_t shard_bytes = groups_[group(static_cast<int64_t>(image))].size_bytes;
    if (member.data_offset_bytes < member.header_bytes || member.size_bytes > shard_bytes ||
        member.data_offset_bytes > shard_bytes - member.size_bytes)
      return false;
  }
  return true;
}

bool ImageIndex::is_consistent(int64_t num_classes) const {
  const size_t images = labels_.size();
  const bool groups_begin_in_order =
      first_images_.size() == groups_.size() && std::ranges::is_sorted(first_images_) &&
      (groups_.empty() ? images == 0 : first_images_.front() == 0 && first_images_.back() <= size());
  const bool names_end_in_order = name_ends_.size() == images && std::ranges::is_sorted(name_ends_) &&
                                  names_.size() == (images == 0 ? 0 : name_ends_.back());
  return groups_begin_in_order && names_end_in_order && has_places() &&
         std::ranges::all_of(labels_, [&](int32_t label) { return label >= 0 && label < num_classes; });
}

// ---- on disk ----

IndexFile::IndexFile(fs::path path, std::string contents, int64_t num_classes)
    : path_(std::move(path)), contents_(std::move(contents)), num_classes_(num_classes) {}

template <class Index, class Use>
void IndexFile::visit_arrays(Index& index, const Use& use) {
  use(index.first_images_);
  use(index.names_);
  use(index.name_ends_);
  use(index.labels_);
  use(index.members_);
}

std::optional<ImageIndex> IndexFile::load() const {
  try {
    const std::string file = read_text(path_);
    const std::optional<std::string_view> payload = payload_of(file);
    if (!payload) return std::nullopt;
    Reader reader(*payload);
    std::string contents;
    reader.get_all(contents);
    if (contents != contents_) return std::nullopt;

    ImageIndex index;
    uint64_t groups = 0;
    for (reader.get(groups); index.groups_.size() < groups;) {
      ImageGroup& group = index.groups_.emplace_back();
      reader.get_all(group.name);
      reader.get(group.size_bytes);
      reader.get(group.changed_ns);
    }
    visit_arrays(index, [&](auto& array) { reader.get_all(array); });
    return reader.at_end() && index.is_consistent(num_classes_) ? std::optional(std::move(index))
                                                                : std::nullopt;
  } catch (const DataError&) {  // missing, unreadable or too short: treated as missing
    return std::nullopt;
  }
}

void IndexFile::save(const ImageIndex& index) const {
  Writer writer;
  writer.put_all(contents_);
  writer.put(static_cast<uint64_t>(index.groups_.size()));
  for (const ImageGroup& group : index.groups_) {
    writer.put_all(group.name);
    writer.put(group.size_bytes);
    writer.put(group.changed_ns);
  }
  visit_arrays(index, [&](const auto& array) { writer.put_all(array); });

  // Processes of a run save at the same time: each uses its own name, and the last one to rename wins.
  const fs::path own = fmt::format("{}.{:08x}", path_.string(), std::random_device()());
  write_file_atomically(own, framed(writer.bytes()));
  std::error_code error, ignored;
  fs::rename(own, path_, error);
  if (error) {
    fs::remove(own, ignored);
    throw_io_error("write", path_, error.value());
  }
  remove_leftovers(path_);
}

ImageIndex update_index(const IndexFile& file, const std::vector<ImageGroup>& groups,
                        const std::function<bool(const ImageGroup&, ImageIndex&)>& list, std::string& note,
                        const OnProgress& on_progress) {
  std::optional<ImageIndex> saved = file.load();
  if (saved && saved->groups() == groups) return std::move(*saved);

  std::map<std::string, size_t, std::less<>> saved_groups;
  for (size_t group = 0; saved && group < saved->groups().size(); ++group)
    saved_groups.emplace(saved->groups()[group].name, group);
  ImageIndex index;
  bool whole = true;
  int64_t done = 0;
  for (const ImageGroup& group : groups) {
    const auto found = saved_groups.find(group.name);
    if (found != saved_groups.end() && saved->groups()[found->second] == group) {
      index.add_group(*saved, found->second);
    } else {
      index.begin_group(settled(group));
      whole = list(group, index) && whole;
    }
    on_progress(++done, static_cast<int64_t>(groups.size()));
  }
  if (!whole) return index;
  try {
    file.save(index);
  } catch (const std::exception& error) {  // the index in memory is valid whatever the error
    note = error.what();
  }
  return index;
}

}  // namespace sdp
