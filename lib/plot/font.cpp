#include "plot/font.h"

#include <span>
#include <stdexcept>

// The file's bytes; SDP_FONT_FILE is its path when the program is built.
asm(R"(
  .section .rodata
  .balign 16
  .globl sdp_font_begin
  .hidden sdp_font_begin
sdp_font_begin:
  .incbin ")" SDP_FONT_FILE R"("
  .previous
)");
extern "C" const unsigned char sdp_font_begin[];

namespace sdp {
namespace {

/// The next character of a UTF-8 text, which is taken away. Bytes that are not UTF-8 stand for themselves.
int take_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length == 1 || text.size() < length) {
    text.remove_prefix(1);
    return first;
  }
  int character = first & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i)
    character = character << 6 | (text[i] & 0x3F);
  text.remove_prefix(length);
  return character;
}

/// Calls `place(character, x)` for each, x in font units; returns the end's.
template <class Place>
int place_characters(const stbtt_fontinfo& font, std::string_view text, Place place) {
  int x = 0;
  int before = 0;
  while (!text.empty()) {
    const int character = take_character(text);
    if (before != 0) x += stbtt_GetCodepointKernAdvance(&font, before, character);
    place(character, x);
    int advance = 0;
    int bearing = 0;
    stbtt_GetCodepointHMetrics(&font, character, &advance, &bearing);
    x += advance;
    before = character;
  }
  return x;
}

/// TrueType outlines have no cubic curves.
Corner::Kind kind_of(const stbtt_vertex& vertex) {
  if (vertex.type == STBTT_vmove) return Corner::Kind::kFirst;
  return vertex.type == STBTT_vcurve ? Corner::Kind::kCurve : Corner::Kind::kLine;
}

}  // namespace

Font::Font() {
  if (stbtt_InitFont(&info_, sdp_font_begin, 0) == 0)
    throw std::logic_error("the program's font cannot be read");
}

double Font::scale(double size) const {
  return stbtt_ScaleForMappingEmToPixels(&info_, 1) * size;
}

double Font::width(std::string_view text, double size) const {
  return place_characters(info_, text, [](int, int) {}) * scale(size);
}

Outline Font::outline(std::string_view text) const {
  Outline outline;
  place_characters(info_, text, [&](int character, int x) {
    stbtt_vertex* glyph = nullptr;
    const int count = stbtt_GetCodepointShape(&info_, character, &glyph);
    for (const stbtt_vertex& vertex : std::span(glyph, static_cast<size_t>(count)))
      outline.push_back({.kind = kind_of(vertex),
                         .at = {static_cast<double>(x + vertex.x), static_cast<double>(vertex.y)},
                         .control = {static_cast<double>(x + vertex.cx), static_cast<double>(vertex.cy)}});
    stbtt_FreeShape(&info_, glyph);
  });
  return outline;
}

std::string Font::shortened(const std::string& text, double size, double room) const {
  if (width(text, size) <= room) return text;
  std::string rest = text;
  while (!rest.empty() && width(rest + "…", size) > room) {
    // A whole character: its continuation bytes and the byte before them.
    while (rest.size() > 1 && (rest.back() & 0xC0) == 0x80)
      rest.pop_back();
    rest.pop_back();
  }
  return rest + "…";
}

}  // namespace sdp
