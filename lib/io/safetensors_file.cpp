#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "io/safetensors.h"
#include "spec/error.h"

namespace sdp {
namespace {

using nlohmann::json;

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr std::array kDTypes = {DTypeInfo{DType::kF64, "F64", 8},   DTypeInfo{DType::kF32, "F32", 4},
                                DTypeInfo{DType::kBF16, "BF16", 2}, DTypeInfo{DType::kF16, "F16", 2},
                                DTypeInfo{DType::kI64, "I64", 8},   DTypeInfo{DType::kI32, "I32", 4},
                                DTypeInfo{DType::kU8, "U8", 1},     DTypeInfo{DType::kBool, "BOOL", 1}};

const DTypeInfo& info(DType dtype) {
  return *std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeInfo& i) { return i.dtype == dtype; });
}

/// One tensor as described in the header; offsets are relative to the start of the data.
struct HeaderEntry {
  TensorEntry entry;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Finds a repeated key in an object. Expects JSON that json::parse has accepted.
class RepeatedKey : public nlohmann::json_sax<json> {
 public:
  const std::string& key_found() const { return found_; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool key(std::string& name) override {
    if (keys_.back().insert(name).second) return true;
    found_ = name;
    return false;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  std::vector<std::unordered_set<std::string>> keys_;  // keys of the objects being parsed, outermost first
  std::string found_;
};

/// Parses one header; all of its errors name the file.
class HeaderParser {
 public:
  HeaderParser(const std::filesystem::path& path, std::span<const std::byte> file)
      : path_(path), file_(file) {}

  int64_t data_begin() const { return kLengthBytes + header_bytes_; }

  json parse();
  TensorMetadata metadata(const json& value) const;
  HeaderEntry tensor(const std::string& name, const json& value) const;
  /// Throws unless the sorted entries cover all of the data without overlap.
  void check_coverage(std::span<const HeaderEntry> entries) const;

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError("safetensors file " + path_.string() + ": " + what +
                    ". The file is damaged or does not follow the format; copy or create it again.");
  }
  [[noreturn]] void fail(const std::string& tensor_name, const std::string& what) const {
    fail("tensor \"" + tensor_name + "\": " + what);
  }
  int64_t read_header_length() const;
  DType dtype(const std::string& name, const json& value) const;
  std::vector<int64_t> sizes(const std::string& name, const json& tensor_value, const char* key) const;

  const std::filesystem::path& path_;
  std::span<const std::byte> file_;
  int64_t header_bytes_ = 0;
};

int64_t HeaderParser::read_header_length() const {
  const auto file_bytes = static_cast<int64_t>(file_.size());
  if (file_bytes < kLengthBytes)
    fail("it has " + std::to_string(file_bytes) + " bytes, less than the 8 of the header length");
  uint64_t length = 0;
  std::memcpy(&length, file_.data(), sizeof length);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes))
    fail("the header length " + std::to_string(length) + " is beyond the limit of " +
         std::to_string(kMaxHeaderBytes) + " bytes");
  if (static_cast<int64_t>(length) > file_bytes - kLengthBytes)
    fail("the header length " + std::to_string(length) + " reaches beyond the file's " +
         std::to_string(file_bytes) + " bytes");
  return static_cast<int64_t>(length);
}

json HeaderParser::parse() {
  header_bytes_ = read_header_length();
  const auto* begin = reinterpret_cast<const char*>(file_.data()) + kLengthBytes;
  const std::string_view text(begin, static_cast<size_t>(header_bytes_));
  if (!text.starts_with('{')) fail("the header does not start with '{'");
  try {
    json header = json::parse(text);
    // In a separate pass: json::parse with a callback walks an object again for each of its members.
    RepeatedKey repeated;
    if (!json::sax_parse(text, &repeated))
      fail("the key \"" + repeated.key_found() + "\" is repeated in the header");
    return header;
  } catch (const json::parse_error& error) {
    fail("the header is not valid JSON at its byte " + std::to_string(error.byte));
  } catch (const json::out_of_range&) {  // 1e999
    fail("the header contains a number that no type can hold");
  }
}

TensorMetadata HeaderParser::metadata(const json& value) const {
  if (!value.is_object()) fail("__metadata__ is not an object");
  TensorMetadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail("__metadata__ \"" + key + "\" is not a string");
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

DType HeaderParser::dtype(const std::string& name, const json& value) const {
  std::string known;
  for (const DTypeInfo& candidate : kDTypes) {
    if (value == candidate.name) return candidate.dtype;
    known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  if (!value.is_string()) fail(name, "dtype " + value.dump() + " is not text");
  throw DataError("safetensors file " + path_.string() + ": tensor \"" + name + "\": dtype " + value.dump() +
                  " is not one of " + known +
                  ". Take the file of unquantized weights, or convert it to F32, BF16 or F16.");
}

std::vector<int64_t> HeaderParser::sizes(const std::string& name, const json& tensor_value,
                                         const char* key) const {
  const json& values = tensor_value.at(key);
  if (!values.is_array()) fail(name, std::string(key) + " is not a list");
  std::vector<int64_t> sizes;
  for (const json& value : values) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
      fail(name, std::string(key) + " " + values.dump() + " contains a value that is not a size");
    sizes.push_back(value.get<int64_t>());
  }
  return sizes;
}

HeaderEntry HeaderParser::tensor(const std::string& name, const json& value) const {
  if (!value.is_object()) fail(name, "its description is not an object");
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!value.contains(key)) fail(name, std::string("the key \"") + key + "\" is missing");

  const TensorEntry entry = {name, dtype(name, value["dtype"]), sizes(name, value, "shape")};
  const std::vector<int64_t> offsets = sizes(name, value, "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    fail(name, "data_offsets " + value["data_offsets"].dump() + " is not a pair of begin and end");
  const std::string size_text =
      "shape " + value["shape"].dump() + " of " + std::string(dtype_name(entry.dtype));
  const std::optional<int64_t> bytes = tensor_bytes(entry.dtype, entry.shape);
  if (!bytes) fail(name, size_text + " is too large");
  if (offsets[1] - offsets[0] != *bytes)
    fail(name, size_text + " needs " + std::to_string(*bytes) + " bytes, but data_offsets " +
                   value["data_offsets"].dump() + " hold " + std::to_string(offsets[1] - offsets[0]));
  return {entry, offsets[0], offsets[1]};
}

void HeaderParser::check_coverage(std::span<const HeaderEntry> entries) const {
  const int64_t data_bytes = static_cast<int64_t>(file_.size()) - data_begin();
  int64_t position = 0;
  for (const HeaderEntry& entry : entries) {
    const std::string& name = entry.entry.name;
    if (entry.end > data_bytes)
      fail(name, "its data ends at " + std::to_string(entry.end) + ", but the file holds " +
                     std::to_string(data_bytes) + " bytes of data");
    if (entry.begin != position)
      fail(name, "its data starts at " + std::to_string(entry.begin) + ", but the data before it ends at " +
                     std::to_string(position) + (entry.begin < position ? " (overlap)" : " (hole)"));
    position = entry.end;
  }
  if (position != data_bytes)
    fail(std::to_string(data_bytes - position) + " bytes after the last tensor belong to no tensor");
}

}  // namespace

int64_t element_bytes(DType dtype) {
  return info(dtype).bytes;
}

std::string_view dtype_name(DType dtype) {
  return info(dtype).name;
}

std::optional<int64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  int64_t bytes = element_bytes(dtype);
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  HeaderParser parser(path, file_.bytes());
  const json header = parser.parse();
  std::vector<HeaderEntry> found;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadataKey)
      metadata_ = parser.metadata(value);
    else
      found.push_back(parser.tensor(name, value));
  }
  std::sort(found.begin(), found.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::tie(a.begin, a.end, a.entry.name) < std::tie(b.begin, b.end, b.entry.name);
  });
  parser.check_coverage(found);

  const std::span<const std::byte> data = file_.bytes().subspan(static_cast<size_t>(parser.data_begin()));
  entries_.reserve(found.size());
  for (HeaderEntry& entry : found) {
    const auto size = static_cast<size_t>(entry.end - entry.begin);
    entries_.push_back({std::move(entry.entry), data.subspan(static_cast<size_t>(entry.begin), size)});
  }
  for (size_t i = 0; i < entries_.size(); ++i)
    by_name_.emplace(entries_[i].entry.name, i);
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

}  // namespace sdp
