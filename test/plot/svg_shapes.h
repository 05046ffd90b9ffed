#pragma once

// The shapes and texts in an SVG of plot/figure.h, found by plain text search.

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

namespace sdp {

struct SvgPoint {
  double x = 0;
  double y = 0;
};

struct SvgShape {
  std::vector<SvgPoint> points;
  std::string color;
  std::string dashes = {};
};

struct SvgText {
  SvgPoint at;
  std::string text;
  std::string anchor;
  bool upright = false;
};

inline std::vector<std::smatch> matches_of(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), regex), std::sregex_iterator()};
}

inline std::vector<SvgPoint> svg_points(const std::string& text) {
  std::vector<SvgPoint> points;
  for (const auto& match : matches_of(text, "([-0-9.]+),([-0-9.]+)"))
    points.push_back({std::stod(match[1]), std::stod(match[2])});
  return points;
}

inline std::vector<SvgShape> svg_lines(const std::string& svg) {
  std::vector<SvgShape> lines;
  for (const auto& match : matches_of(
           svg,
           R"X(<polyline points="([^"]*)"[^>]* stroke="([^"]*)"[^>]*?( stroke-dasharray="([^"]*)")?/>)X"))
    lines.push_back({svg_points(match[1]), match[2], match[4]});
  return lines;
}

inline std::vector<SvgShape> svg_polygons(const std::string& svg) {
  std::vector<SvgShape> polygons;
  for (const auto& match : matches_of(svg, R"X(<polygon points="([^"]*)" fill="([^"]*)")X"))
    polygons.push_back({svg_points(match[1]), match[2]});
  return polygons;
}

inline std::vector<SvgText> svg_texts(const std::string& svg) {
  std::vector<SvgText> texts;
  for (
      const auto& match : matches_of(
          svg,
          R"X(<text x="([^"]*)" y="([^"]*)" font-size="[^"]*" text-anchor="([^"]*)"[^>]*?(transform="rotate[^>]*)?>([^<]*)</text>)X"))
    texts.push_back({{std::stod(match[1]), std::stod(match[2])}, match[5], match[3], match[4].matched});
  return texts;
}

}  // namespace sdp
