#include <algorithm>
#include <cmath>

#include "catch.h"
#include "plot/axis.h"
#include "plot/style.h"
#include "plot/thin.h"

using namespace sdp;

namespace {

std::string labels(const Axis& axis) {
  std::string text;
  for (const Tick& tick : axis.ticks)
    text += tick.label + " ";
  return text;
}

}  // namespace

TEST_CASE("ticks are multiples of 1, 2 or 5 times a power of ten", "[plot]") {
  CHECK(labels(make_axis({0, 10}, {.most_ticks = 5, .margin = 0})) == "0 2 4 6 8 10 ");
  CHECK(labels(make_axis({0, 10}, {.most_ticks = 4, .margin = 0})) == "0 5 10 ");
  CHECK(labels(make_axis({-0.3, 0.3}, {.most_ticks = 6, .margin = 0})) == "−0.3 −0.2 −0.1 0.0 0.1 0.2 0.3 ");
  CHECK(labels(make_axis({97.2, 97.9}, {.most_ticks = 4, .margin = 0})) == "97.2 97.4 97.6 97.8 ");
  const Axis large = make_axis({0, 2.5e15}, {.most_ticks = 5, .margin = 0});
  CHECK(labels(large) == "0.0 0.5 1.0 1.5 2.0 2.5 ");
  CHECK(large.exponent == 15);
  const Axis steps = make_axis({0, 120000}, {.most_ticks = 6, .margin = 0});
  CHECK(labels(steps) == "0 20 40 60 80 100 120 ");
  CHECK(steps.exponent == 3);
  const Axis small = make_axis({0, 4e-7}, {.most_ticks = 4, .margin = 0});
  CHECK(labels(small) == "0 100 200 300 400 ");
  CHECK(small.exponent == -9);
  CHECK(power_of_ten_text(-12) == "10⁻¹²");
}

TEST_CASE("ticks are evenly spaced within the axis, for ranges of every size", "[plot]") {
  for (int power = -300; power <= 300; power += 7)
    for (const double low : {-3.7, 0.0, 1.2, 2.29}) {
      const double unit = std::pow(10, power);
      const Axis axis = make_axis({low * unit, 2.3 * unit}, {.most_ticks = 8});
      REQUIRE(axis.ticks.size() >= 3);
      CHECK(axis.ticks.size() <= 10);
      const double step = axis.ticks[1].value - axis.ticks[0].value;
      for (size_t i = 0; i < axis.ticks.size(); ++i) {
        CHECK(axis.ticks[i].value == Approx(axis.ticks[0].value + i * step).margin(1e-9 * step));
        CHECK(axis.share(axis.ticks[i].value) >= -1e-9);
        CHECK(axis.share(axis.ticks[i].value) <= 1 + 1e-9);
        if (i > 0) CHECK(axis.ticks[i].label != axis.ticks[i - 1].label);
      }
    }
}

TEST_CASE("the ends of an axis", "[plot]") {
  const auto ends = [](Extent data, double zero_share) {
    const Axis axis = make_axis(data, {.margin = 0.1, .zero_share = zero_share});
    return std::pair{axis.low, axis.high};
  };
  CHECK(ends({10, 110}, 0) == std::pair{0.0, 120.0});
  CHECK(ends({20, 120}, 0) == std::pair{10.0, 130.0});
  CHECK(ends({20, 120}, 0.2) == std::pair{0.0, 130.0});
  CHECK(ends({1, 101}, 0) == std::pair{0.0, 111.0});  // not below 0 if no value is
  CHECK(ends({-1, 99}, 0.2) == std::pair{-11.0, 109.0});
  CHECK(ends({5, 5}, 0) == std::pair{4.5, 5.5});
  CHECK(ends({0, 0}, 0.2) == std::pair{-1.0, 1.0});
}

TEST_CASE("logarithmic axes", "[plot]") {
  const auto log_axis = [](double low, double high) {
    return make_axis({low, high}, {.is_log = true, .most_ticks = 8, .margin = 0});
  };
  CHECK(labels(log_axis(1e-3, 1e3)) == "0.001 0.01 0.1 1 10 100 1000 ");
  CHECK(labels(log_axis(1e8, 3e10)) == "10⁸ 10⁹ 10¹⁰ ");
  CHECK(labels(log_axis(1e-20, 1e20)) == "10⁻²⁰ 10⁻¹⁴ 10⁻⁸ 10⁻² 10⁴ 10¹⁰ 10¹⁶ ");
  CHECK(labels(log_axis(1.5, 60)) == "2 5 10 20 50 ");
  CHECK(labels(log_axis(2, 4)) == "2.0 2.5 3.0 3.5 4.0 ");
  CHECK(log_axis(1, 100).minor.size() == 16);
  CHECK(log_axis(1, 100).share(10) == Approx(0.5));
  const Axis one = log_axis(7, 7);
  CHECK(one.low == 3.5);
  CHECK(one.high == 14);
}

TEST_CASE("extents leave out values that an axis cannot show", "[plot]") {
  const double infinity = HUGE_VAL;
  CHECK_FALSE(extent_of({NAN, infinity, -infinity}, false));
  CHECK_FALSE(extent_of({0, -1}, true));
  CHECK(extent_of({3, NAN, -1, infinity}, false)->low == -1);
  CHECK(extent_of({3, NAN, -1, infinity}, true)->low == 3);
}

TEST_CASE("42 series differ by color and dashes", "[plot]") {
  for (size_t a = 0; a < 42; ++a)
    for (size_t b = 0; b < a; ++b) {
      const SeriesStyle one = style_of(a), other = style_of(b);
      CHECK_FALSE((one.color == other.color && one.dashes == other.dashes));
      CHECK_FALSE((one.color == other.color && one.marker == other.marker));
    }
}

TEST_CASE("a thinned line keeps its ends and every peak", "[plot]") {
  std::vector<Point> line;
  for (int i = 0; i < 100000; ++i)
    line.push_back({100 + i * 0.005, 200 + 50 * std::sin(i * 0.7)});
  line[54321].y = -7;
  line[54322].y = 777;
  const std::vector<Point> thin = thinned(line);
  CHECK(thin.size() <= 4 * 1001);
  CHECK(thin.front().x == line.front().x);
  CHECK(thin.back().x == line.back().x);
  const auto has = [&](const Point& point) {
    return std::any_of(thin.begin(), thin.end(),
                       [&](const Point& other) { return other.x == point.x && other.y == point.y; });
  };
  CHECK(has(line[54321]));
  CHECK(has(line[54322]));
  CHECK(std::is_sorted(thin.begin(), thin.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
  const std::vector<Point> short_line(line.begin(), line.begin() + 1000);
  CHECK(thinned(short_line).size() == 1000);
}
