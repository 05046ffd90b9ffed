#include "plot/text_width.h"

#include <array>
#include <cstddef>

namespace sdp {
namespace {

constexpr double kEm = 2048;
/// Width of other characters: most symbols in figures are as wide as a plus sign.
constexpr int kOtherWidth = 1716;

/// Advance widths of DejaVu Sans 2.37 from the space to the tilde, in 1/2048 em.
constexpr std::array<int, 95> kWidths = {
    651,  821,  942,  1716, 1303, 1946, 1597, 563,  799,  799,  1024, 1716, 651,  739,  651,  690,
    1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 690,  690,  1716, 1716, 1716, 1087,
    2048, 1401, 1405, 1430, 1577, 1294, 1178, 1587, 1540, 604,  604,  1343, 1141, 1767, 1532, 1612,
    1235, 1612, 1423, 1300, 1251, 1499, 1401, 2025, 1403, 1251, 1403, 799,  690,  799,  1716, 1024,
    1024, 1255, 1300, 1126, 1300, 1260, 721,  1300, 1298, 569,  569,  1186, 569,  1995, 1298, 1253,
    1300, 1300, 842,  1067, 803,  1298, 1212, 1675, 1212, 1212, 1075, 1303, 690,  1303, 1716};

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

double text_width(std::string_view text, double size) {
  int width = 0;
  for (const char byte : text) {
    if (continues_character(byte)) continue;
    const auto place = static_cast<size_t>(static_cast<unsigned char>(byte)) - ' ';
    width += place < kWidths.size() ? kWidths[place] : kOtherWidth;
  }
  return width / kEm * size;
}

std::string shortened(const std::string& text, double size, double room) {
  if (text_width(text, size) <= room) return text;
  std::string rest = text;
  while (!rest.empty() && text_width(rest + "…", size) > room) {
    while (rest.size() > 1 && continues_character(rest.back()))
      rest.pop_back();
    rest.pop_back();
  }
  return rest + "…";
}

}  // namespace sdp
