#include "data/tar_shard.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>

#include "spec/error.h"

namespace sdp {

namespace {

struct ArchiveDeleter {
  void operator()(archive* handle) const { archive_read_free(handle); }
};
using ArchiveHandle = std::unique_ptr<archive, ArchiveDeleter>;

[[noreturn]] void fail_at_position(const std::filesystem::path& shard, archive* handle) {
  const char* reason = archive_error_string(handle);
  throw DataError(
      shard.string() + ": broken tar file at offset " + std::to_string(archive_read_header_position(handle)) +
      ": " + (reason ? reason : "unknown error") + ". Expected an uncompressed tar; write or copy it again.");
}

/// libarchive takes the end of the file between two members for the end of the archive.
void check_end_mark(const std::filesystem::path& shard, int64_t size_bytes) {
  constexpr int64_t kEndMarkBytes = 1024;
  std::vector<char> tail(kEndMarkBytes);
  std::ifstream file(shard, std::ios::binary);
  if (size_bytes >= kEndMarkBytes) {
    file.seekg(size_bytes - kEndMarkBytes);
    file.read(tail.data(), kEndMarkBytes);
  }
  const bool zero = std::all_of(tail.begin(), tail.end(), [](char byte) { return byte == 0; });
  if (size_bytes < kEndMarkBytes || !file || !zero)
    throw DataError(
        shard.string() + ": broken tar file: it ends at offset " + std::to_string(size_bytes) +
        " without the two zero blocks that end a tar, so it is truncated. Write or copy it again.");
}

ArchiveHandle open_tar(const std::filesystem::path& shard) {
  ArchiveHandle handle(archive_read_new());
  archive_read_support_format_tar(handle.get());
  // Otherwise a zeroed block inside the file would silently end it.
  archive_read_set_options(handle.get(), "tar:read_concatenated_archives");
  constexpr size_t kBlockBytes = 1 << 20;
  if (archive_read_open_filename(handle.get(), shard.c_str(), kBlockBytes) != ARCHIVE_OK)
    fail_at_position(shard, handle.get());
  return handle;
}

std::string name_of(archive_entry* entry) {
  if (const char* name = archive_entry_pathname(entry)) return name;
  if (const char* name = archive_entry_pathname_utf8(entry)) return name;
  return "(unreadable name)";
}

/// A sample's key and the extension behind it, both as views into `name`.
struct KeyAndExtension {
  std::string_view key;
  std::string_view extension;
};

KeyAndExtension split_name(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t dot = name.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool is_jpeg(std::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "JPEG" || extension == "JPG";
}

/// The innermost folder of a member's name; empty where there is none.
std::string_view folder_of(std::string_view name) {
  const size_t end = name.rfind('/');
  if (end == std::string_view::npos) return {};
  const size_t before = name.substr(0, end).rfind('/');
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return name.substr(begin, end - begin);
}

/// The number that `text` is, spaces and line ends around it aside.
std::optional<int64_t> parse_number(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(kSpace) - first + 1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// `where` says what the text belongs to.
int64_t label_from(std::string_view text, int64_t num_classes, const std::string& where) {
  const std::optional<int64_t> label = parse_number(text);
  if (!label || *label < 0 || *label >= num_classes)
    throw DataError(where + ": label '" + std::string(text.substr(0, 40)) + "', expected a number in 0.." +
                    std::to_string(num_classes - 1) + ".");
  return *label;
}

}  // namespace

std::string place_of(const std::filesystem::path& shard, const TarMember& member) {
  return shard.string() + ": member " + member.name + " at offset " + std::to_string(member.offset_bytes);
}

std::vector<TarMember> read_tar(const std::filesystem::path& shard) {
  std::error_code error;
  const auto size_bytes = static_cast<int64_t>(std::filesystem::file_size(shard, error));
  if (error) throw DataError(shard.string() + ": can't be read: " + error.message() + ".");

  const ArchiveHandle handle = open_tar(shard);
  std::vector<TarMember> members;
  archive_entry* entry = nullptr;
  for (;;) {
    const int result = archive_read_next_header(handle.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail_at_position(shard, handle.get());
    if (archive_entry_filetype(entry) != AE_IFREG) continue;

    TarMember member{name_of(entry), archive_read_header_position(handle.get()), {}};
    const int64_t member_bytes = archive_entry_size(entry);
    if (member_bytes > size_bytes - member.offset_bytes)
      throw DataError(place_of(shard, member) + ": broken tar file: the member has " +
                      std::to_string(member_bytes) + " bytes, but the file ends at " +
                      std::to_string(size_bytes) + ". Write or copy it again.");
    member.data.resize(static_cast<size_t>(member_bytes));
    if (archive_read_data(handle.get(), member.data.data(), member.data.size()) != member_bytes)
      fail_at_position(shard, handle.get());
    members.push_back(std::move(member));
  }
  check_end_mark(shard, size_bytes);
  return members;
}

std::vector<LabelledJpeg> read_jpeg_shard(const std::filesystem::path& shard, int64_t num_classes) {
  std::vector<TarMember> members = read_tar(shard);

  std::map<std::string, int64_t, std::less<>> label_of_key;
  std::map<std::string, int64_t, std::less<>> offset_of_image;
  for (const TarMember& member : members) {
    const auto [key, extension] = split_name(member.name);
    bool is_new = true;
    if (extension == "cls") {
      const std::string_view text(reinterpret_cast<const char*>(member.data.data()), member.data.size());
      is_new = label_of_key.emplace(key, label_from(text, num_classes, place_of(shard, member))).second;
    } else if (is_jpeg(extension)) {
      is_new = offset_of_image.emplace(key, member.offset_bytes).second;
    }
    if (!is_new)
      throw DataError(place_of(shard, member) +
                      ": a member of this key came before. Keys must be unique in a shard.");
  }
  if (offset_of_image.empty())
    throw DataError(shard.string() + ": no member named KEY.jpg among " + std::to_string(members.size()) +
                    " members. Expected images KEY.jpg with their labels in KEY.cls.");

  std::vector<LabelledJpeg> samples;
  samples.reserve(offset_of_image.size());
  for (TarMember& member : members) {
    const auto [key, extension] = split_name(member.name);
    if (!is_jpeg(extension)) continue;
    int64_t label = 0;
    if (const auto found = label_of_key.find(key); found != label_of_key.end())
      label = found->second;
    else if (label_of_key.empty() && parse_number(folder_of(member.name)))
      label = label_from(folder_of(member.name), num_classes, place_of(shard, member));
    else
      throw DataError(place_of(shard, member) + ": no label. Expected a member " + std::string(key) +
                      ".cls with the class as a number.");
    samples.push_back({std::move(member), label});
  }
  return samples;
}

}  // namespace sdp
