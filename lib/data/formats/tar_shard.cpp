#include "data/formats/tar_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>

#include "data/formats/jpeg.h"
#include "io/file.h"
#include "spec/error.h"

namespace sdp {

namespace {

constexpr std::string_view kDoubled = ": a member of this key came before. Keys must be unique in a shard.";

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

/// libarchive takes an end of file between two members for the end of the archive.
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
  check_regular_file(shard);
  ArchiveHandle handle(archive_read_new());
  archive_read_support_format_tar(handle.get());
  // Without this option, a zeroed block inside the file would silently end it.
  archive_read_set_options(handle.get(), "tar:read_concatenated_archives");
  // Small, so that members are skipped instead of read.
  constexpr size_t kBlockBytes = 1 << 13;
  if (archive_read_open_filename(handle.get(), shard.c_str(), kBlockBytes) != ARCHIVE_OK)
    fail_at_position(shard, handle.get());
  return handle;
}

std::string name_of(archive_entry* entry) {
  if (const char* name = archive_entry_pathname(entry)) return name;
  if (const char* name = archive_entry_pathname_utf8(entry)) return name;
  return "(unreadable name)";
}

/// A sample's key and the following extension, both as views into `name`.
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

/// The innermost folder of a member's name; empty if there is none.
std::string_view folder_of(std::string_view name) {
  const size_t end = name.rfind('/');
  if (end == std::string_view::npos) return {};
  const size_t before = name.substr(0, end).rfind('/');
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  return name.substr(begin, end - begin);
}

/// The number in `text`, ignoring spaces and line ends around it.
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

/// For messages: replaces unprintable bytes of a damaged file by '?'.
std::string printable(std::string_view text) {
  std::string shown(text.substr(0, 40));
  std::replace_if(
      shown.begin(), shown.end(), [](char letter) { return letter < ' ' || letter > '~'; }, '?');
  return shown;
}

/// Labels of the samples in a shard, by their keys.
using LabelOfKey = std::map<std::string, int64_t, std::less<>>;

/// `place` describes the position of the text. std::nullopt after a problem.
std::optional<int64_t> label_from(std::string_view text, int64_t num_classes, const std::string& place,
                                  const OnProblem& on_problem) {
  const std::optional<int64_t> label = parse_number(text);
  if (label && *label >= 0 && *label < num_classes) return label;
  on_problem(
      fmt::format("{}: label '{}', expected a number in 0..{}.", place, printable(text), num_classes - 1));
  return std::nullopt;
}

std::string text_of(const InputFile& file, const TarEntry& member) {
  constexpr int64_t kMostBytes = 64;  // limit for a valid label
  std::string text(static_cast<size_t>(std::min(member.size_bytes, kMostBytes)), '\0');
  file.read_at(member.data_offset_bytes, std::as_writable_bytes(std::span(text)));
  return text;
}

/// The labels in all KEY.cls of a shard; none: there is no such member. A key with an invalid label has the
/// label -1.
LabelOfKey labels_in(const std::filesystem::path& shard, const std::vector<TarEntry>& members,
                     int64_t num_classes, const OnProblem& on_problem) {
  const InputFile file(shard);
  LabelOfKey labels;
  for (const TarEntry& member : members) {
    const auto [key, extension] = split_name(member.name);
    if (extension != "cls") continue;
    const std::string place = place_of(shard, member);
    const std::optional<int64_t> label = label_from(text_of(file, member), num_classes, place, on_problem);
    if (!labels.emplace(key, label.value_or(-1)).second) on_problem(place + std::string(kDoubled));
  }
  return labels;
}

void read_data(const InputFile& file, TarMember& member) {
  member.data.resize(static_cast<size_t>(member.size_bytes));
  file.read_at(member.data_offset_bytes, std::as_writable_bytes(std::span(member.data)));
}

}  // namespace

std::string place_of(const std::filesystem::path& shard, const TarEntry& member) {
  return fmt::format("{}: member {} at offset {}", shard.string(), member.name, member.offset_bytes);
}

std::vector<TarEntry> list_tar(const std::filesystem::path& shard) {
  std::error_code error;
  const auto size_bytes = static_cast<int64_t>(std::filesystem::file_size(shard, error));
  if (error) throw DataError(shard.string() + ": cannot be read: " + error.message() + ".");

  const ArchiveHandle handle = open_tar(shard);
  std::vector<TarEntry> members;
  archive_entry* entry = nullptr;
  for (;;) {
    const int result = archive_read_next_header(handle.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail_at_position(shard, handle.get());
    if (archive_entry_filetype(entry) != AE_IFREG) continue;

    TarEntry member{.name = name_of(entry),
                    .offset_bytes = archive_read_header_position(handle.get()),
                    .data_offset_bytes = archive_filter_bytes(handle.get(), 0),
                    .size_bytes = archive_entry_size(entry)};
    if (member.size_bytes > size_bytes - member.data_offset_bytes)
      throw DataError(fmt::format(
          "{}: broken tar file: the member has {} bytes, but the file ends at {}. Write or copy it again.",
          place_of(shard, member), member.size_bytes, size_bytes));
    members.push_back(std::move(member));
  }
  check_end_mark(shard, size_bytes);
  return members;
}

std::vector<TarMember> read_tar(const std::filesystem::path& shard) {
  std::vector<TarMember> members;
  for (TarEntry& entry : list_tar(shard))
    members.push_back({std::move(entry), {}});
  const InputFile file(shard);
  for (TarMember& member : members)
    read_data(file, member);
  return members;
}

std::vector<JpegEntry> list_jpeg_shard(const std::filesystem::path& shard, int64_t num_classes,
                                       const OnProblem& on_problem) {
  std::vector<TarEntry> members = list_tar(shard);
  const LabelOfKey label_of_key = labels_in(shard, members, num_classes, on_problem);
  std::set<std::string, std::less<>> keys;
  std::vector<JpegEntry> samples;
  for (TarEntry& member : members) {
    const auto [key, extension] = split_name(member.name);
    if (!is_jpeg_extension(extension)) continue;
    const std::string place = place_of(shard, member);
    if (!keys.emplace(key).second) {
      on_problem(place + std::string(kDoubled));
      continue;
    }
    std::optional<int64_t> label;
    if (const auto found = label_of_key.find(key); found != label_of_key.end())
      label = found->second;
    else if (label_of_key.empty() && parse_number(folder_of(member.name)))
      label = label_from(folder_of(member.name), num_classes, place, on_problem).value_or(-1);
    else
      on_problem(
          fmt::format("{}: no label. Expected a member {}.cls with the class as a number.", place, key));
    if (label.value_or(-1) >= 0) samples.push_back({std::move(member), *label});
  }
  if (keys.empty())
    on_problem(fmt::format(
        "{}: no member named KEY.jpg among {} members. Expected images KEY.jpg with their labels in "
        "KEY.cls.",
        shard.string(), members.size()));
  return samples;
}

std::vector<LabelledJpeg> read_jpeg_shard(const std::filesystem::path& shard, int64_t num_classes) {
  std::vector<LabelledJpeg> samples;
  for (JpegEntry& entry : list_jpeg_shard(shard, num_classes, throw_problem))
    samples.push_back({.jpeg = {std::move(entry.jpeg), {}}, .label = entry.label});
  const InputFile file(shard);
  for (LabelledJpeg& sample : samples)
    read_data(file, sample.jpeg);
  return samples;
}

}  // namespace sdp
