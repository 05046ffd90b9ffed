#include "plot/svg.h"

#include <fmt/format.h>

#include <string_view>

namespace sdp {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // XML allows no other control characters.
        result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

std::string hex(Color color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.red, color.green, color.blue);
}

/// At most two decimals, without trailing zeros.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string points_text(const std::vector<Point>& points) {
  std::string text;
  for (const Point& point : points)
    text += fmt::format("{}{},{}", text.empty() ? "" : " ", number(point.x), number(point.y));
  return text;
}

std::string element(const Polyline& line) {
  std::string dashes;
  for (const double length : line.dashes)
    dashes += fmt::format("{}{}", dashes.empty() ? "" : " ", number(length));
  if (!dashes.empty()) dashes = fmt::format(R"( stroke-dasharray="{}")", dashes);
  return fmt::format(
      R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="{}" stroke-linejoin="round"{}/>)",
      points_text(line.points), hex(line.color), number(line.width), dashes);
}

std::string element(const Polygon& polygon) {
  const std::string opacity =
      polygon.opacity < 1 ? fmt::format(R"( fill-opacity="{}")", number(polygon.opacity)) : "";
  return fmt::format(R"(<polygon points="{}" fill="{}"{}/>)", points_text(polygon.points), hex(polygon.color),
                     opacity);
}

std::string element(const Text& text) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  const std::string x = number(text.at.x);
  const std::string y = number(text.at.y);
  const std::string turned = text.upright ? fmt::format(R"X( transform="rotate(-90 {} {})")X", x, y) : "";
  return fmt::format(R"(<text x="{}" y="{}" font-size="{}" text-anchor="{}" fill="{}"{}>{}</text>)", x, y,
                     number(text.size), kAnchors[static_cast<int>(text.anchor)], hex(text.color), turned,
                     escaped(text.text));
}

}  // namespace

std::string svg_of(const Scene& scene) {
  const std::string width = number(scene.width);
  const std::string height = number(scene.height);
  std::string text = fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" viewBox="0 0 {0} {1}" font-family="DejaVu Sans, Verdana, sans-serif">
<title>{2}</title>
<rect width="{0}" height="{1}" fill="#ffffff"/>
)",
      width, height, escaped(scene.title));
  for (const Item& item : scene.items)
    text += std::visit([](const auto& shape) { return element(shape); }, item) + "\n";
  return text + "</svg>\n";
}

}  // namespace sdp
