#include "telemetry/crc32c.h"

#include <array>

namespace sdp {
namespace {

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

}  // namespace

uint32_t crc32c(std::string_view data) {
  static constexpr std::array<uint32_t, 256> kTable = make_table();
  uint32_t crc = 0xFFFFFFFF;
  for (const char character : data)
    crc = kTable[(crc ^ static_cast<unsigned char>(character)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

}  // namespace sdp
