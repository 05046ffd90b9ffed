#include "sweep/points.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "spec/error.h"
#include "spec/text.h"

namespace sdp {
namespace {

constexpr std::string_view kSeed = "seed";

/// Converts the text to a part of a folder name.
std::string slug(std::string_view text) {
  std::string name;
  bool pending = false;
  for (const char character : text) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(character)) != 0 ||
                          std::string_view("._+-").find(character) != std::string_view::npos;
    if (is_plain && pending && !name.empty()) name += '-';
    pending = !is_plain;
    if (is_plain) name += character;
  }
  return name;
}

std::string last_word(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

/// Names of axes in point names: the last word, if only one axis has it.
std::map<std::string, std::string> short_names(const std::vector<SweepAxis>& axes) {
  std::map<std::string, std::string> names;
  for (const SweepAxis& axis : axes) {
    const auto shares = [&](const SweepAxis& other) { return last_word(other.name) == last_word(axis.name); };
    const bool is_unique = std::count_if(axes.begin(), axes.end(), shares) == 1;
    names[axis.name] = is_unique ? last_word(axis.name) : axis.name;
  }
  return names;
}

/// One value for each of some axes.
using Combination = std::vector<std::pair<const SweepAxis*, const SweepAxisValue*>>;

/// All combinations, the first axis slowest; without axes, one empty combination.
std::vector<Combination> combinations(const std::vector<const SweepAxis*>& axes) {
  std::vector<Combination> all(1);
  for (const SweepAxis* axis : axes) {
    std::vector<Combination> longer;
    for (const Combination& combination : all)
      for (const SweepAxisValue& value : axis->values) {
        longer.push_back(combination);
        longer.back().emplace_back(axis, &value);
      }
    all = std::move(longer);
  }
  return all;
}

class Expansion {
 public:
  explicit Expansion(const SweepSpec& sweep) : sweep_(sweep), short_names_(short_names(sweep.axes)) {}

  std::vector<SweepPoint> points() const {
    check_size();
    std::vector<SweepPoint> points;
    const auto add = [&](const SweepAddition* addition) {
      for (const Combination& combination : combinations(axes_of(addition)))
        points.push_back(point(combination, addition));
    };
    if (!sweep_.axes.empty()) add(nullptr);
    for (const SweepAddition& addition : sweep_.also)
      add(&addition);
    return points;
  }

 private:
  /// Runs before any point is made.
  void check_size() const {
    constexpr size_t kMostPoints = 10'000;
    size_t points = 0;
    const auto add = [&](const SweepAddition* addition) {
      size_t combined = 1;
      for (const SweepAxis* axis : axes_of(addition))
        combined = std::min(combined * axis->values.size(), kMostPoints + 1);
      points = std::min(points + combined, kMostPoints + 1);
    };
    if (!sweep_.axes.empty()) add(nullptr);
    for (const SweepAddition& addition : sweep_.also)
      add(&addition);
    if (points <= kMostPoints) return;
    std::vector<std::string> sizes;
    for (const SweepAxis& axis : sweep_.axes)
      sizes.push_back(fmt::format("{} of {}", axis.values.size(), shortened(axis.name)));
    throw UsageError(
        fmt::format("the sweep {} has more than {} points (values of its axes: {}). "
                    "Divide it into several sweeps",
                    sweep_.name, kMostPoints, fmt::join(sizes, ", ")));
  }

  std::vector<const SweepAxis*> axes_of(const SweepAddition* addition) const {
    std::vector<const SweepAxis*> axes;
    for (const SweepAxis& axis : sweep_.axes)
      if (!addition || std::count(addition->across.begin(), addition->across.end(), axis.name) > 0)
        axes.push_back(&axis);
    return axes;
  }

  /// `addition`: null for a point of the grid.
  SweepPoint point(const Combination& combination, const SweepAddition* addition) const {
    std::vector<std::string> name;
    std::vector<std::string> label;
    if (addition) {
      name.push_back(slug(addition->label));
      label.push_back(addition->label);
    }
    SweepPoint point;
    apply(sweep_.common, point);
    for (const auto& [axis, value] : combination) {
      const std::string& axis_name = short_names_.at(axis->name);
      name.push_back(slug(axis_name) + "=" + slug(value->name));
      if (axis->name != kSeed) label.push_back(axis->is_key ? axis_name + "=" + value->name : value->name);
      apply(value->changes, point);
    }
    if (addition) apply(addition->changes, point);
    point.name = fmt::format("{}", fmt::join(name, ","));
    point.label = label.empty() ? sweep_.name : fmt::format("{}", fmt::join(label, ", "));
    point.values = values(combination, addition);
    return point;
  }

  static void apply(const SweepChanges& changes, SweepPoint& point) {
    point.configs.insert(point.configs.end(), changes.configs.begin(), changes.configs.end());
    for (const SweepSetting& setting : changes.set)
      point.overrides.push_back(setting.key + "=" + setting.value);
  }

  std::vector<std::pair<std::string, std::string>> values(const Combination& combination,
                                                          const SweepAddition* addition) const {
    std::vector<std::pair<std::string, std::string>> values;
    for (const SweepAxis& axis : sweep_.axes) {
      for (const auto& [crossed, value] : combination)
        if (crossed == &axis) values.emplace_back(axis.name, value->name);
      if (!addition || !axis.is_key) continue;
      for (const SweepSetting& setting : addition->changes.set)
        if (setting.key == axis.name) values.emplace_back(axis.name, setting.value);
    }
    return values;
  }

  const SweepSpec& sweep_;
  std::map<std::string, std::string> short_names_;
};

bool is_excluded(const SweepPoint& point, const SweepExclusion& exclusion) {
  return std::all_of(exclusion.axes.begin(), exclusion.axes.end(),
                     [&](const SweepExclusion::OfAxis& of_axis) {
                       return std::any_of(point.values.begin(), point.values.end(), [&](const auto& value) {
                         return value.first == of_axis.axis &&
                                std::count(of_axis.values.begin(), of_axis.values.end(), value.second) > 0;
                       });
                     });
}

void check_names(const std::vector<SweepPoint>& points) {
  std::map<std::string, const SweepPoint*> seen;
  for (const SweepPoint& point : points)
    if (const auto [first, is_new] = seen.emplace(point.name, &point); !is_new)
      throw UsageError(
          fmt::format("two points of the sweep have the name {}: \"{}\" and \"{}\". Give one of them another "
                      "label or value.",
                      point.name, first->second->label, point.label));
}

}  // namespace

std::vector<SweepPoint> expand(const SweepSpec& sweep) {
  std::vector<SweepPoint> points = Expansion(sweep).points();
  for (const SweepExclusion& exclusion : sweep.exclude) {
    const size_t left_out =
        std::erase_if(points, [&](const SweepPoint& point) { return is_excluded(point, exclusion); });
    if (left_out == 0)
      fail_at(exclusion.position, "exclude", "excludes no point, expected the values of an existing point");
  }
  if (points.empty())
    throw UsageError(fmt::format("the sweep {} has no point that is not excluded", sweep.name));
  check_names(points);
  return points;
}

}  // namespace sdp
