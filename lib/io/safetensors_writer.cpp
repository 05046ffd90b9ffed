#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "io/safetensors.h"

namespace sdp {
namespace {

/// Appends to a comma-separated list.
void add_item(std::string& list, std::string_view item) {
  if (!list.empty()) list += ',';
  list += item;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string items;
  for (const int64_t size : shape)
    add_item(items, std::to_string(size));
  return "[" + items + "]";
}

/// A JSON string; the JSON library escapes it and refuses text that is not UTF-8.
std::string json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw std::logic_error("safetensors: a name or metadata is not UTF-8: " + std::string(text));
  }
}

std::string metadata_text(const TensorMetadata& metadata) {
  std::string items;
  for (const auto& [key, value] : metadata)
    add_item(items, json_string(key) + ":" + json_string(value));
  return "{" + items + "}";
}

bool is_wider(const TensorEntry& a, const TensorEntry& b) {
  return element_bytes(a.dtype) > element_bytes(b.dtype);
}

std::vector<TensorEntry> checked(std::vector<TensorEntry> entries) {
  std::unordered_set<std::string_view> names = {kMetadataKey};
  for (const TensorEntry& entry : entries)
    if (!names.insert(entry.name).second)
      throw std::logic_error("safetensors: tensor name " + entry.name + " is repeated or reserved");
  if (!std::is_sorted(entries.begin(), entries.end(), is_wider))
    throw std::logic_error("safetensors: entries are not in the order of sort_for_writing");
  return entries;
}

/// Built as text: inserting into an ordered JSON object searches its keys linearly.
std::string header_text(std::span<const TensorEntry> entries, const TensorMetadata& metadata) {
  std::string items;
  if (!metadata.empty()) add_item(items, json_string(kMetadataKey) + ":" + metadata_text(metadata));
  int64_t offset = 0;
  for (const TensorEntry& entry : entries) {
    const int64_t end = offset + entry.bytes();
    add_item(items, json_string(entry.name) + R"(:{"dtype":")" + std::string(dtype_name(entry.dtype)) +
                        R"(","shape":)" + shape_text(entry.shape) + R"(,"data_offsets":[)" +
                        std::to_string(offset) + "," + std::to_string(end) + "]}");
    offset = end;
  }
  std::string text = "{" + items + "}";
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes)
    throw std::logic_error("safetensors: the header of " + std::to_string(entries.size()) +
                           " tensors is larger than readers accept");
  return text;
}

}  // namespace

int64_t TensorEntry::bytes() const {
  const std::optional<int64_t> size = tensor_bytes(dtype, shape);
  if (!size) throw std::logic_error("tensor " + name + " has the impossible shape " + shape_text(shape));
  return *size;
}

void sort_for_writing(std::vector<TensorEntry>& entries) {
  std::stable_sort(entries.begin(), entries.end(), is_wider);
}

SafetensorsWriter::SafetensorsWriter(std::vector<TensorEntry> entries, const std::filesystem::path& path)
    : entries_(checked(std::move(entries))), file_(path, OutputFile::Mode::kTruncate) {}

// After the other constructor the destructor runs, and removes the file, even if the header does not fit.
SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> entries,
                                     const TensorMetadata& metadata)
    : SafetensorsWriter(std::move(entries), path) {
  const std::string header = header_text(entries_, metadata);
  const std::array<uint64_t, 1> length = {header.size()};  // little-endian, as the tensors' elements are
  for (const std::span<const std::byte> part :
       {std::span<const std::byte>(std::as_bytes(std::span(length))), std::as_bytes(std::span(header))}) {
    file_.write(part);
    hash_.update(part);
    digest_.bytes += static_cast<int64_t>(part.size());
  }
  file_.flush();
  skip_finished_tensors();
}

SafetensorsWriter::~SafetensorsWriter() {
  std::error_code ignored;
  if (!finished_ && file_.is_regular()) std::filesystem::remove(file_.path(), ignored);
}

void SafetensorsWriter::write(std::span<const std::byte> data) {
  if (data.empty()) return;
  const auto size = static_cast<int64_t>(data.size());
  if (current_ == entries_.size()) throw std::logic_error("safetensors: data after the last tensor");
  const TensorEntry& entry = entries_[current_];
  if (size > entry.bytes() - current_bytes_)
    throw std::logic_error("safetensors: " + std::to_string(size) + " bytes for tensor " + entry.name +
                           ", which has " + std::to_string(entry.bytes() - current_bytes_) + " left");
  file_.write(data);
  hash_.update(data);
  digest_.bytes += size;
  current_bytes_ += size;
  skip_finished_tensors();
}

FileDigest SafetensorsWriter::finish() {
  if (finished_) throw std::logic_error("safetensors: finished twice");
  if (current_ != entries_.size())
    throw std::logic_error("safetensors: tensor " + entries_[current_].name + " is incomplete");
  file_.sync();
  finished_ = true;
  digest_.xxh3_128 = hash_.hex();
  return digest_;
}

void SafetensorsWriter::skip_finished_tensors() {
  while (current_ < entries_.size() && current_bytes_ == entries_[current_].bytes()) {
    ++current_;
    current_bytes_ = 0;
  }
}

}  // namespace sdp
