#include "io/event_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>

#include "process/identity.h"
#include "spec/text.h"

namespace sdp {
namespace {

constexpr std::string_view kFileNamePrefix = "events.out.tfevents.";
constexpr std::string_view kFileVersion = "brain.Event:2";

enum class ProtoType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Little-endian.
template <class Unsigned>
std::string fixed(Unsigned value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i)
    bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

/// Seven bits per byte, lowest first; all bytes but the last have their highest bit set.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += static_cast<char>(value | 0x80);
  return bytes += static_cast<char>(value);
}

std::string key(uint32_t field, ProtoType type) {
  return varint(field << 3 | static_cast<uint32_t>(type));
}
std::string integer_field(uint32_t field, int64_t value) {
  return key(field, ProtoType::kVarint) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint32_t field, double value) {
  return key(field, ProtoType::kFixed64) + fixed(std::bit_cast<uint64_t>(value));
}
std::string float_field(uint32_t field, float value) {
  return key(field, ProtoType::kFixed32) + fixed(std::bit_cast<uint32_t>(value));
}
/// A length-delimited field: a string or a message.
std::string bytes_field(uint32_t field, std::string_view bytes) {
  return (key(field, ProtoType::kBytes) + varint(bytes.size())).append(bytes);
}

std::string event(double wall_time_s, int64_t step, const std::string& what) {
  return double_field(1, wall_time_s) + integer_field(2, step) + what;
}

/// google.protobuf.Value
std::string protobuf_value(const std::string& yaml) {
  if (const auto number = number_in<double>(yaml)) return double_field(2, *number);
  if (yaml == "true" || yaml == "false") return integer_field(4, yaml == "true" ? 1 : 0);
  return bytes_field(3, yaml);
}

/// Lookup table: the remainder of every byte.
constexpr std::array<uint32_t, 256> make_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78;
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ (remainder % 2 == 1 ? kPolynomial : 0);
    table[byte] = remainder;
  }
  return table;
}

uint32_t masked(uint32_t crc) {
  constexpr uint32_t kDelta = 0xa282ead8;
  return std::rotr(crc, 15) + kDelta;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The time in the name of the folder's newest event file; 0 if there is none.
int64_t newest_seconds(const std::filesystem::path& folder) {
  int64_t newest = 0;
  for (const std::filesystem::path& file : files_matching(folder, std::string(kFileNamePrefix) + "*")) {
    const std::string name = file.filename().string();
    int64_t seconds = 0;
    std::from_chars(name.data() + kFileNamePrefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, seconds);
  }
  return newest;
}

std::filesystem::path new_event_file(const std::filesystem::path& folder) {
  const int64_t seconds = std::max(static_cast<int64_t>(now_s()), newest_seconds(folder) + 1);
  return folder / fmt::format("{}{:010}.{}", kFileNamePrefix, seconds, host_name());
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t crc = 0xFFFFFFFF;
  for (const char character : data)
    crc = kTable[(crc ^ static_cast<unsigned char>(character)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string scalars_event(double wall_time_s, int64_t step, const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars)
    if (std::isfinite(scalar.value))
      summary +=
          bytes_field(1, bytes_field(1, scalar.tag) + float_field(2, static_cast<float>(scalar.value)));
  return event(wall_time_s, step, bytes_field(5, summary));
}

std::string hyperparameters_event(double wall_time_s, const std::vector<Hyperparameter>& settings) {
  std::string session = double_field(5, wall_time_s);
  for (const auto& [name, value] : settings)
    session += bytes_field(1, bytes_field(1, name) + bytes_field(2, protobuf_value(value)));
  const std::string plugin = bytes_field(1, "hparams") + bytes_field(2, bytes_field(3, session));
  const std::string summary =
      bytes_field(1, bytes_field(1, "_hparams_/session_start_info") + bytes_field(9, bytes_field(1, plugin)));
  return event(wall_time_s, 0, bytes_field(5, summary));
}

std::string tf_record(std::string_view data) {
  const std::string size = fixed(static_cast<uint64_t>(data.size()));
  return (size + fixed(masked(crc32c(size)))).append(data) + fixed(masked(crc32c(data)));
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step,
                     const std::vector<Hyperparameter>& settings)
    : file_(new_event_file(folder), OutputFile::Mode::kAppend) {
  constexpr int64_t kStart = 1;
  file_.write(tf_record(event(now_s(), 0, bytes_field(3, kFileVersion))));
  file_.write(tf_record(event(now_s(), first_step, bytes_field(7, integer_field(1, kStart)))));
  if (!settings.empty()) file_.write(tf_record(hyperparameters_event(now_s(), settings)));
  file_.flush();
}

void EventFile::append(int64_t step, const std::vector<Scalar>& scalars) {
  file_.write(tf_record(scalars_event(now_s(), step, scalars)));
  file_.flush();
}

}  // namespace sdp
