// The SVG by text search; the expected position of a value follows from the labels on the axes.

#include <algorithm>
#include <cmath>
#include <optional>

#include "catch.h"
#include "plot/figure.h"
#include "plot/text_width.h"
#include "spec/error.h"
#include "svg_shapes.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

const std::string kFirstColor = "#0072b2";
const std::string kSecondColor = "#d55e00";

std::vector<SvgShape> of_color(std::vector<SvgShape> shapes, const std::string& color) {
  std::erase_if(shapes, [&](const SvgShape& shape) { return shape.color != color; });
  return shapes;
}

/// The number in a label, which may have a typographic minus sign.
std::optional<double> number_of(std::string label) {
  const bool is_negative = label.starts_with("−");
  if (is_negative) label = "-" + label.substr(std::string("−").size());
  char* end = nullptr;
  const double value = std::strtod(label.c_str(), &end);
  if (label.empty() || *end != '\0') return std::nullopt;
  return value;
}

/// The position of a value, from the straight line through the outermost two labels of an axis.
class Mapping {
 public:
  Mapping(const std::string& svg, bool is_x, bool is_log) : is_log_(is_log) {
    for (const SvgText& text : svg_texts(svg)) {
      const std::optional<double> value = number_of(text.text);
      // Numbers of the x axis are centered; those of the y axis end at it.
      if (!value || text.anchor != (is_x ? "middle" : "end")) continue;
      ticks_.push_back({is_log ? std::log(*value) : *value, is_x ? text.at.x : text.at.y - 0.36 * 12});
    }
    REQUIRE(ticks_.size() >= 2);
  }

  double operator()(double value) const {
    if (is_log_) value = std::log(value);
    const auto [v0, p0] = ticks_.front();
    const auto [v1, p1] = ticks_.back();
    return p0 + (value - v0) / (v1 - v0) * (p1 - p0);
  }

 private:
  std::vector<std::pair<double, double>> ticks_;
  bool is_log_;
};

Figure two_lines() {
  Figure figure{.title = "Loss", .x_label = "step", .y_label = "loss"};
  Series one{.name = "DDP", .x = {}, .y = {}}, other{.name = "B-SDP 4/8", .x = {}, .y = {}};
  for (int i = 1; i <= 20; ++i) {
    one.x.push_back(5 * i);
    one.y.push_back(3 - 0.1 * i + (i % 2) * 0.2);
    other.x.push_back(5 * i + 2);
    other.y.push_back(1.5 * std::exp(-i / 10.0) - 0.4);
  }
  figure.series = {one, other};
  return figure;
}

bool has_text(const std::string& svg, const std::string& wanted) {
  const std::vector<SvgText> texts = svg_texts(svg);
  return std::any_of(texts.begin(), texts.end(), [&](const SvgText& text) { return text.text == wanted; });
}

}  // namespace

TEST_CASE("values lie at the positions that the labels of the axes indicate", "[plot]") {
  Figure figure = two_lines();
  const bool is_log = GENERATE(false, true);
  if (is_log) {
    figure.log_x = figure.log_y = true;
    for (double& y : figure.series[1].y)
      y = 1e-3 * std::exp(5 * y);
  }
  const std::string svg = to_svg(figure);
  const Mapping x_of(svg, true, is_log), y_of(svg, false, is_log);
  const std::vector<std::string> colors = {kFirstColor, kSecondColor};
  for (size_t s = 0; s < 2; ++s) {
    const Series& series = figure.series[s];
    const std::vector<SvgShape> lines = of_color(svg_lines(svg), colors[s]);
    REQUIRE(lines.size() == 2);  // the line and the sample in the legend
    REQUIRE(lines[0].points.size() == series.x.size());
    CHECK(lines[0].dashes.empty() == (s == 0));
    CHECK(lines[0].dashes == lines[1].dashes);
    for (size_t i = 0; i < series.x.size(); ++i) {
      CHECK(lines[0].points[i].x == Approx(x_of(series.x[i])).margin(0.02));
      CHECK(lines[0].points[i].y == Approx(y_of(series.y[i])).margin(0.02));
    }
  }
}

TEST_CASE("the legend is next to or below the plot, never on it", "[plot]") {
  Figure figure = two_lines();
  const bool is_beside = GENERATE(true, false);
  if (!is_beside) figure.series[1].name = "B-SDP 4/8 of a name that would take much of the width of the plot";
  const std::string svg = to_svg(figure);
  double right = 0, bottom = 0;
  for (const SvgShape& line : svg_lines(svg)) {
    if (line.color != "#e2e2e2") continue;
    for (const SvgPoint& point : line.points) {
      right = std::max(right, point.x);
      bottom = std::max(bottom, point.y);
    }
  }
  REQUIRE(right > 300);
  for (const Series& series : figure.series) {
    REQUIRE(has_text(svg, series.name));
    for (const SvgText& text : svg_texts(svg))
      if (text.text == series.name) CHECK((is_beside ? text.at.x > right : text.at.y > bottom));
  }
}

TEST_CASE("gaps, single points and values that cannot be shown", "[plot]") {
  Figure figure;
  figure.series = {{.name = "", .x = {1, 2, 3, 4, 5, 6, 7, 8}, .y = {1, 2, NAN, 3, HUGE_VAL, 4, 5, -1}}};
  figure.log_y = true;
  const std::string svg = to_svg(figure);
  const std::vector<SvgShape> lines = of_color(svg_lines(svg), kFirstColor);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].points.size() == 2);
  CHECK(lines[1].points.size() == 2);
  CHECK(of_color(svg_polygons(svg), kFirstColor).size() == 1);  // the point at x = 4
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("constant values and a single point are drawn in the middle", "[plot]") {
  const double y = GENERATE(0.0, -0.5, 4e9);
  Figure figure;
  figure.series = {{.name = "", .x = {10, 20}, .y = {y, y}}};
  const std::string line_svg = to_svg(figure);
  const std::vector<SvgShape> lines = of_color(svg_lines(line_svg), kFirstColor);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].points[0].y == lines[0].points[1].y);
  CHECK(lines[0].points[0].y == Approx(16 + 370 / 2.0));
  figure.series = {{.name = "", .x = {10}, .y = {y}}};
  CHECK(svg_polygons(to_svg(figure)).size() == 1);
}

TEST_CASE("a figure without values says so", "[plot]") {
  Figure figure{.title = "Nothing", .x_label = "x", .y_label = "y"};
  CHECK(has_text(to_svg(figure), "no values"));
  figure.series = {{.name = "n", .x = {1}, .y = {NAN}}};
  CHECK(has_text(to_svg(figure), "no values"));
  figure.log_x = figure.log_y = true;
  CHECK(has_text(to_svg(figure), "no values"));
  CHECK_FALSE(has_text(to_svg(two_lines()), "no values"));
}

TEST_CASE("bands and error bars extend one standard deviation to both sides", "[plot]") {
  Figure figure;
  figure.series = {{.name = "", .x = {0, 10}, .y = {2, 4}, .y_error = {0.5, NAN}},
                   {.name = "", .x = {5}, .y = {3}, .y_error = {1}, .has_line = false}};
  const std::string svg = to_svg(figure);
  const Mapping y_of(svg, false, false);
  const std::vector<SvgShape> bands = of_color(svg_polygons(svg), kFirstColor);
  REQUIRE(bands.size() == 1);
  REQUIRE(bands[0].points.size() == 4);
  const std::vector<double> corners = {2.5, 4, 4, 1.5};
  for (size_t i = 0; i < 4; ++i)
    CHECK(bands[0].points[i].y == Approx(y_of(corners[i])).margin(0.02));
  const std::vector<SvgShape> bar = of_color(svg_lines(svg), kSecondColor);
  REQUIRE(bar.size() == 3);  // the bar and its caps
  CHECK(bar[0].points[0].y == Approx(y_of(4)).margin(0.02));
  CHECK(bar[0].points[1].y == Approx(y_of(2)).margin(0.02));
}

TEST_CASE("names on the x axis are vertical, and XML's special characters are escaped", "[plot]") {
  Figure figure{.title = "a < b & \"c\"", .y_label = "cosine"};
  figure.series = {{.name = "<w>", .x = {0, 1, 2}, .y = {1, 2, 3}}};
  figure.x_names = {"conv1", "layer1.0", "fc & more"};
  const std::string svg = to_svg(figure);
  CHECK(has_text(svg, "a &lt; b &amp; &quot;c&quot;"));
  CHECK(has_text(svg, "&lt;w&gt;"));
  std::vector<SvgText> names;
  for (const SvgText& text : svg_texts(svg))
    if (text.upright && text.text != "cosine") names.push_back(text);
  REQUIRE(names.size() == 3);
  CHECK(names[2].text == "fc &amp; more");
  const std::vector<SvgShape> lines = of_color(svg_lines(svg), kFirstColor);
  for (size_t i = 0; i < 3; ++i)
    CHECK(names[i].at.x - 0.36 * 12 == Approx(lines[0].points[i].x).margin(0.02));
}

TEST_CASE("figures are written as SVG, the same bytes each time", "[plot]") {
  const TempFolder folder;
  write_figure(two_lines(), folder.path(), "loss");
  CHECK(get(folder / "loss.svg") == to_svg(two_lines()));
  CHECK_THROWS_AS(write_figure(two_lines(), folder / "missing", "loss"), DataError);
  Figure uneven;
  uneven.series = {{.name = "u", .x = {1, 2}, .y = {1}}};
  CHECK_THROWS_AS(to_svg(uneven), std::logic_error);
}

TEST_CASE("a line of text is as wide as its characters, and is shortened to the available width", "[plot]") {
  // DejaVu Sans, in units of 1/2048: m 1995, i 569, the ellipsis 1716, like all characters outside the table.
  CHECK(text_width("mim", 2048) == 1995 + 569 + 1995);
  CHECK(text_width("−1", 20.48) == Approx(17.16 + 13.03));
  CHECK(shortened("mimi", 2048, 5128) == "mimi");
  CHECK(shortened("mimi", 2048, 5127) == "mi…");
  CHECK(shortened("µµµ", 2048, 2 * 1716) == "µ…");
  CHECK(shortened("mm", 2048, 10) == "…");
}
