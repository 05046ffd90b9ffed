#include "formats/tar_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include <archive.h>
#include <archive_entry.h>

#include "formats/image.h"
#include "spec/error.h"
#include "spec/text.h"

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
  const InputFile file(shard);
  std::vector<std::byte> first_bytes(static_cast<size_t>(std::min<int64_t>(file.size_bytes(), 512)));
  file.read_at(0, first_bytes);
  check_content(shard, first_bytes);
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

/// WebDataset's key: the name up to the first dot after the last slash.
std::string_view key_of(std::string_view name) {
  const size_t slash = name.rfind('/');
  return name.substr(0, name.find('.', slash == std::string_view::npos ? 0 : slash + 1));
}

/// The name without its extension and the dot before it.
std::string_view stem_of(std::string_view name) {
  name.remove_suffix(extension_of(name).size());
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

bool is_label(std::string_view name) {
  return lower_case(extension_of(name)) == "cls";
}

bool is_hidden(const std::filesystem::path& name) {
  return std::any_of(name.begin(), name.end(), [](const std::filesystem::path& part) {
    return part.string().starts_with('.') && part != "." && part != "..";
  });
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
  return number_in<int64_t>(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
}

/// Labels in a shard, by the names of their members without the extension.
using Labels = std::map<std::string, int64_t, std::less<>>;

/// `place` describes the position of the text. std::nullopt after a problem.
std::optional<int64_t> label_from(std::string_view text, int64_t num_classes, const std::string& place,
                                  const OnProblem& on_problem) {
  const std::optional<int64_t> label = parse_number(text);
  if (label && *label >= 0 && *label < num_classes) return label;
  on_problem(
      fmt::format("{}: label {:?}, expected a number in 0..{}.", place, text.substr(0, 40), num_classes - 1));
  return std::nullopt;
}

/// The labels in all .cls members of a shard. An invalid label is -1.
Labels labels_in(const std::filesystem::path& shard, const std::vector<TarEntry>& members,
                 int64_t num_classes, const OnProblem& on_problem) {
  constexpr int64_t kMostBytes = 64;  // limit for a valid label
  const InputFile file(shard);
  Labels labels;
  for (const TarEntry& member : members) {
    if (!is_label(member.name)) continue;
    const std::string place = place_of(shard, member);
    const std::vector<uint8_t> text = read_member(file, member, kMostBytes);
    const std::optional<int64_t> label =
        label_from({reinterpret_cast<const char*>(text.data()), text.size()}, num_classes, place, on_problem);
    if (!labels.emplace(stem_of(member.name), label.value_or(-1)).second)
      on_problem(place + std::string(kDoubled));
  }
  return labels;
}

/// Reports what may be a sample but has no image that is read: an image in another format or under another
/// name, or a label alone.
void report_unread(const std::filesystem::path& shard, const std::vector<TarEntry>& members,
                   const OnProblem& on_problem) {
  std::set<std::string_view> keys;  // of the images read or reported
  for (const TarEntry& member : members)
    if (is_image_name(member.name)) keys.insert(key_of(member.name));
  const InputFile file(shard);
  for (const TarEntry& member : members) {
    const std::string_view key = key_of(member.name);
    if (is_label(member.name) || keys.contains(key)) continue;
    const bool is_image = starts_as_image(read_member(file, member, kImageMagicBytes));
    if (!is_other_image_name(member.name) && !is_image) continue;
    keys.insert(key);
    on_problem(fmt::format(
        "{}: an image that is not read. Expected a JPEG, PNG or WebP named KEY.jpg, KEY.png or KEY.webp; "
        "convert or rename it.",
        place_of(shard, member)));
  }
  for (const TarEntry& member : members)
    if (is_label(member.name) && keys.insert(key_of(member.name)).second)
      on_problem(fmt::format("{}: a label without an image. Expected a member {}.jpg.",
                             place_of(shard, member), stem_of(member.name)));
}

/// A link in a tar file, by the numbers of list_tar()'s result.
struct Link {
  size_t member;
  std::filesystem::path target;
};

/// Gives each link the position of the file that it leads to.
void follow_links(const std::filesystem::path& shard, const std::vector<Link>& links,
                  std::vector<TarEntry>& members) {
  if (links.empty()) return;
  const auto normal = [](const std::filesystem::path& name) { return name.lexically_normal().string(); };
  std::map<std::string, size_t> member_named;
  for (size_t member = 0; member < members.size(); ++member)
    member_named.emplace(normal(members[member].name), member);
  std::map<size_t, std::string> target_of;
  for (const Link& link : links)
    target_of.emplace(link.member, normal(link.target));
  for (const auto& [link, target] : target_of) {
    size_t at = link;
    for (size_t hops = 0; hops <= links.size() && target_of.contains(at); ++hops) {
      const auto found = member_named.find(target_of.at(at));
      if (found == member_named.end()) break;
      at = found->second;
    }
    if (target_of.contains(at))
      throw DataError(
          fmt::format("{}: a link to {}, which is no file in this tar. Write the tar with the files in place "
                      "of the links "
                      "(GNU tar: --dereference --hard-dereference).",
                      place_of(shard, members[link]), target));
    const std::string name = members[link].name;
    members[link] = members[at];
    members[link].name = name;
  }
}

}  // namespace

std::vector<uint8_t> read_member(const InputFile& file, const TarEntry& member, int64_t most_bytes) {
  std::vector<uint8_t> bytes(static_cast<size_t>(std::min(member.size_bytes, most_bytes)));
  file.read_at(member.data_offset_bytes, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string place_of(const std::filesystem::path& shard, const TarEntry& member) {
  return fmt::format("{}: member {} at offset {}", shard.string(), member.name, member.offset_bytes);
}

std::vector<TarEntry> list_tar(const std::filesystem::path& shard) {
  std::error_code error;
  const auto size_bytes = static_cast<int64_t>(std::filesystem::file_size(shard, error));
  if (error) throw DataError(shard.string() + ": cannot be read: " + error.message() + ".");

  const ArchiveHandle handle = open_tar(shard);
  std::vector<TarEntry> members;
  std::vector<Link> links;
  archive_entry* entry = nullptr;
  for (;;) {
    const int result = archive_read_next_header(handle.get(), &entry);
    if (result == ARCHIVE_EOF) break;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN) fail_at_position(shard, handle.get());
    const char* symlink = archive_entry_symlink(entry);
    const char* hardlink = archive_entry_size(entry) > 0 ? nullptr : archive_entry_hardlink(entry);
    if (!symlink && !hardlink && archive_entry_filetype(entry) != AE_IFREG) continue;

    TarEntry member{.name = name_of(entry),
                    .offset_bytes = archive_read_header_position(handle.get()),
                    .data_offset_bytes = archive_filter_bytes(handle.get(), 0),
                    .size_bytes = archive_entry_size(entry)};
    if (member.size_bytes > size_bytes - member.data_offset_bytes)
      throw DataError(fmt::format(
          "{}: broken tar file: the member has {} bytes, but the file ends at {}. Write or copy it again.",
          place_of(shard, member), member.size_bytes, size_bytes));
    if (hardlink) links.push_back({.member = members.size(), .target = hardlink});
    if (symlink)
      links.push_back(
          {.member = members.size(), .target = std::filesystem::path(member.name).parent_path() / symlink});
    members.push_back(std::move(member));
  }
  check_end_mark(shard, size_bytes);
  follow_links(shard, links, members);
  return members;
}

std::vector<ImageEntry> list_image_shard(const std::filesystem::path& shard, int64_t num_classes,
                                         const OnProblem& on_problem) {
  std::vector<TarEntry> members = list_tar(shard);
  const size_t count = members.size();
  std::erase_if(members, [](const TarEntry& member) { return is_hidden(member.name); });
  const Labels labels = labels_in(shard, members, num_classes, on_problem);
  report_unread(shard, members, on_problem);
  std::set<std::string, std::less<>> used;   // names of labels
  std::set<std::string, std::less<>> plain;  // keys of images KEY.jpg, KEY.png and so on
  std::set<std::string, std::less<>> jpegs;  // stems
  for (const TarEntry& member : members) {
    if (is_image_name(member.name) && stem_of(member.name) == key_of(member.name))
      plain.emplace(key_of(member.name));
    if (is_jpeg_name(member.name)) jpegs.emplace(stem_of(member.name));
  }
  std::vector<ImageEntry> samples;
  for (TarEntry& member : members) {
    if (!is_image_name(member.name)) continue;
    const std::string place = place_of(shard, member);
    const std::string_view key = key_of(member.name);
    const std::string_view stem = stem_of(member.name);
    const bool by_folder = labels.empty() && parse_number(folder_of(member.name));
    const std::string_view name = by_folder || labels.contains(stem) ? stem : key;
    // KEY.depth.jpg beside KEY.jpg is another field of the same sample, as is a mask KEY.png.
    if (name != stem && plain.contains(key)) continue;
    if (!is_jpeg_name(member.name) && jpegs.contains(stem)) continue;
    if (!used.emplace(name).second) {
      on_problem(place + std::string(kDoubled));
      continue;
    }
    std::optional<int64_t> label;
    if (by_folder)
      label = label_from(folder_of(member.name), num_classes, place, on_problem);
    else if (const auto found = labels.find(name); found != labels.end())
      label = found->second;
    else
      on_problem(
          fmt::format("{}: no label. Expected a member {}.cls with the class as a number.", place, key));
    if (label.value_or(-1) >= 0) samples.push_back({std::move(member), *label});
  }
  if (used.empty())
    on_problem(
        fmt::format("{}: no member named as an image among {} members. Expected images KEY.jpg, KEY.png or "
                    "KEY.webp with their labels in KEY.cls.",
                    shard.string(), count));
  return samples;
}

std::vector<LabelledImage> read_image_shard(const std::filesystem::path& shard, int64_t num_classes) {
  std::vector<ImageEntry> entries = list_image_shard(shard, num_classes, throw_problem);
  const InputFile file(shard);
  std::vector<LabelledImage> samples;
  for (ImageEntry& entry : entries) {
    std::vector<uint8_t> data = read_member(file, entry.image);
    samples.push_back({std::move(entry), std::move(data)});
  }
  return samples;
}

}  // namespace sdp
