#include "sweep/sweep_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "experiment/spec/experiment_spec.h"
#include "spec/error.h"
#include "spec/read.h"
#include "spec/text.h"
#include "spec/value_text.h"
#include "spec/visit.h"
#include "spec/yaml_tree.h"

namespace sdp {
namespace {

using Kind = YamlNode::Kind;

void expect(const YamlNode& node, Kind kind, const std::string& key, const std::string& expected) {
  if (node.kind != kind) fail_at(node.position, key, found(node) + ", expected " + expected);
}

const std::string& read_word(const YamlNode& node, const std::string& key, const std::string& expected) {
  expect(node, Kind::kScalar, key, expected);
  if (node.text.empty()) fail_at(node.position, key, "found an empty text, expected " + expected);
  return node.text;
}

/// A value as YAML on one line, with the same meaning as in the file.
std::string line_of(const YamlNode& node) {
  if (node.kind == Kind::kNull) return "null";
  if (node.kind == Kind::kScalar) {
    // Other characters have a meaning in YAML.
    const bool is_special =
        node.text.empty() || node.text.find_first_of(",[]{}#&*!|>'\"%@`:\n") != std::string::npos;
    return node.quoted || is_special ? yaml_text(node.text) : node.text;
  }
  std::string items;
  for (const YamlNode& item : node.items)
    items += (items.empty() ? "" : ", ") + line_of(item);
  return "[" + items + "]";
}

/// Reads the sweep of one file.
class SweepReader {
 public:
  explicit SweepReader(std::filesystem::path folder) : folder_(std::move(folder)) {}

  SweepSpec read(const YamlNode& root) {
    refuse_experiment(root);
    expect(root, Kind::kMapping, "", "a mapping with the keys name, configs, set, grid, also, exclude");
    check_keys(root, "", {.allowed = {"name", "configs", "set", "grid", "also", "exclude"}}, errors_);
    errors_.throw_if_any();
    const YamlNode* name = find_key(root, "name");
    if (!name) fail_at(root.position, "name", "missing, expected the name of the sweep's folder");
    sweep_.name = read_word(*name, "name", "the name of the sweep's folder");
    if (sweep_.name.front() == '.' || sweep_.name.find('/') != std::string::npos)
      fail_at(name->position, "name", found(*name) + ", expected a folder name: no leading '.', no '/'");
    if (const YamlNode* configs = find_key(root, "configs")) read_configs(*configs, "configs", sweep_.common);
    if (const YamlNode* set = find_key(root, "set")) read_settings(*set, "set", sweep_.common);
    if (const YamlNode* grid = find_key(root, "grid")) read_grid(*grid);
    if (const YamlNode* also = find_key(root, "also")) read_also(*also);
    if (const YamlNode* exclude = find_key(root, "exclude")) read_exclude(*exclude);
    if (sweep_.axes.empty() && sweep_.also.empty())
      fail_at(root.position, "", "there is nothing to run, expected `grid` or `also`");
    return std::move(sweep_);
  }

 private:
  static void refuse_experiment(const YamlNode& root) {
    const bool has_points = find_key(root, "grid") || find_key(root, "also");
    for (const std::string_view key : keys_of<ExperimentSpec>())
      if (key != "name" && !has_points && find_key(root, key))
        fail_at(
            root.position, std::string(key),
            fmt::format("found an experiment, expected a sweep, which has `grid` or `also`. Train it with: "
                        "sdp-train --config {0}; or name it in a sweep: configs: [{0}]",
                        root.position.source));
  }

  void read_configs(const YamlNode& node, const std::string& key, SweepChanges& changes) const {
    expect(node, Kind::kList, key, "a list of YAML files, relative to this file");
    for (const YamlNode& item : node.items)
      changes.configs.push_back(
          (folder_ / read_word(item, key, "the name of a YAML file")).lexically_normal());
  }

  /// `outer`: the keys of the enclosing mappings.
  void read_settings(const YamlNode& node, const std::string& where, SweepChanges& changes,
                     const std::string& outer = "") {
    expect(node, Kind::kMapping, where, "a mapping of an experiment's keys, such as {optimizer.lr: 0.2}");
    for (size_t i = 0; i < node.keys.size(); ++i) {
      if (!is_dotted_key(node.keys[i].text))
        fail_at(node.keys[i].position, where, found(node.keys[i]) + ", expected a key such as optimizer.lr");
      const std::string key = dotted(outer, node.keys[i].text);
      if (node.items[i].kind == Kind::kMapping) {
        read_settings(node.items[i], where, changes, key);
      } else {
        add_setting(key, node.items[i], node.keys[i].position, changes);
      }
    }
  }

  void add_setting(const std::string& key, const YamlNode& value, const Position& position,
                   SweepChanges& changes) {
    // A point's name is made of its values, and its folder is the sweep's.
    if (key == "name" || (key == "output.dir" && &changes != &sweep_.common))
      fail_at(position, key,
              key == "name" ? "the sweep names its runs itself"
                            : "the same for all runs, expected in the sweep's `set`");
    for (const SweepSetting& other : changes.set)
      if (other.key == key) fail_at(position, key, "found a second time, expected once");
    ReadResults results{.positions = positions_, .errors = errors_, .all_keys = {}};
    read_section(scratch_, nested(key, value, position), "", results);
    errors_.throw_if_any();
    changes.set.push_back({key, line_of(value)});
  }

  void read_grid(const YamlNode& node) {
    expect(node, Kind::kMapping, "grid", "a mapping of axes");
    std::map<std::string, std::string> axis_of_key;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      const YamlNode& name = node.keys[i];
      if (find_axis(name.text))
        fail_at(name.position, "grid." + name.text, "found a second time, expected once");
      sweep_.axes.push_back(read_axis(name, node.items[i]));
      for (const SweepAxisValue& value : sweep_.axes.back().values)
        for (const SweepSetting& setting : value.changes.set) {
          const auto [other, is_new] = axis_of_key.emplace(setting.key, name.text);
          if (!is_new && other->second != name.text)
            fail_at(name.position, "grid." + name.text,
                    fmt::format("sets {}, which the axis {} sets too", setting.key, other->second));
        }
    }
  }

  SweepAxis read_axis(const YamlNode& name, const YamlNode& node) {
    const std::string where = "grid." + name.text;
    SweepAxis axis = {.name = name.text, .is_key = node.kind == Kind::kList};
    if (axis.is_key) {
      for (const YamlNode& item : node.items) {
        axis.values.push_back({item.kind == Kind::kScalar ? item.text : line_of(item)});
        add_setting(axis.name, item, name.position, axis.values.back().changes);
      }
    } else {
      expect(node, Kind::kMapping, where, "a list of the key's values, or a mapping of named values");
      for (size_t i = 0; i < node.keys.size(); ++i) {
        axis.values.push_back({node.keys[i].text});
        read_changes(node.items[i], where + "." + node.keys[i].text, axis.values.back().changes);
      }
    }
    constexpr size_t kMostValues = 10'000;
    if (axis.values.empty()) fail_at(name.position, where, "found no value, expected at least one");
    if (axis.values.size() > kMostValues)
      fail_at(name.position, where,
              fmt::format("found {} values, expected at most {}", axis.values.size(), kMostValues));
    for (size_t i = 0; i < axis.values.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (axis.values[i].name == axis.values[j].name)
          fail_at(name.position, where,
                  fmt::format("found '{}' a second time, expected once", shortened(axis.values[i].name)));
    return axis;
  }

  /// Settings, which may include `configs`.
  void read_changes(const YamlNode& node, const std::string& where, SweepChanges& changes) {
    expect(node, Kind::kMapping, where, "a mapping of an experiment's keys, such as {optimizer.lr: 0.2}");
    YamlNode settings = node;
    for (size_t i = 0; i < settings.keys.size(); ++i) {
      if (settings.keys[i].text != "configs") continue;
      read_configs(settings.items[i], where + ".configs", changes);
      settings.keys.erase(settings.keys.begin() + static_cast<std::ptrdiff_t>(i));
      settings.items.erase(settings.items.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    read_settings(settings, where, changes);
  }

  void read_also(const YamlNode& node) {
    expect(node, Kind::kList, "also",
           "a list of points, each as {label: DDP, set: {subnetwork.coverage: 1}}");
    for (const YamlNode& item : node.items) {
      expect(item, Kind::kMapping, "also", "a mapping with the keys label, configs, set, across");
      check_keys(item, "also", {.allowed = {"label", "configs", "set", "across"}}, errors_);
      errors_.throw_if_any();
      const YamlNode* label = find_key(item, "label");
      if (!label) fail_at(item.position, "also.label", "missing, expected what the point is called");
      SweepAddition addition = {.label = read_word(*label, "also.label", "what the point is called")};
      if (const YamlNode* configs = find_key(item, "configs"))
        read_configs(*configs, "also.configs", addition.changes);
      if (const YamlNode* set = find_key(item, "set")) read_settings(*set, "also.set", addition.changes);
      if (const YamlNode* across = find_key(item, "across")) {
        expect(*across, Kind::kList, "also.across", "a list of axes, such as [seed]");
        for (const YamlNode& axis : across->items)
          read_across(axis, addition);
      }
      sweep_.also.push_back(std::move(addition));
    }
  }

  void read_across(const YamlNode& node, SweepAddition& addition) {
    const SweepAxis& axis = axis_named(node, "also.across");
    const auto is_axis = [&](const SweepSetting& setting) { return axis.is_key && setting.key == axis.name; };
    if (std::any_of(addition.changes.set.begin(), addition.changes.set.end(), is_axis))
      fail_at(node.position, "also.across", found(node) + ", which the point's `set` already sets");
    if (std::find(addition.across.begin(), addition.across.end(), axis.name) != addition.across.end())
      fail_at(node.position, "also.across", found(node) + " a second time, expected once");
    addition.across.push_back(axis.name);
  }

  void read_exclude(const YamlNode& node) {
    expect(node, Kind::kList, "exclude", "a list of points to leave out, each as {AXIS: value}");
    for (const YamlNode& item : node.items) {
      expect(item, Kind::kMapping, "exclude", "a mapping of axes to values");
      if (item.keys.empty()) fail_at(item.position, "exclude", "found no axis, expected at least one");
      SweepExclusion exclusion = {.axes = {}, .position = item.position};
      for (size_t i = 0; i < item.keys.size(); ++i) {
        const SweepAxis& axis = axis_named(item.keys[i], "exclude");
        SweepExclusion::OfAxis values = {.axis = axis.name, .values = {}};
        if (item.items[i].kind == Kind::kList) {
          for (const YamlNode& value : item.items[i].items)
            values.values.push_back(value_named(value, axis));
        } else {
          values.values.push_back(value_named(item.items[i], axis));
        }
        exclusion.axes.push_back(std::move(values));
      }
      sweep_.exclude.push_back(std::move(exclusion));
    }
  }

  const SweepAxis* find_axis(const std::string& name) const {
    const auto axis = std::find_if(sweep_.axes.begin(), sweep_.axes.end(),
                                   [&](const SweepAxis& candidate) { return candidate.name == name; });
    return axis == sweep_.axes.end() ? nullptr : &*axis;
  }

  const SweepAxis& axis_named(const YamlNode& node, const std::string& where) const {
    if (const SweepAxis* axis = find_axis(read_word(node, where, "the name of an axis"))) return *axis;
    std::vector<std::string_view> names;
    for (const SweepAxis& axis : sweep_.axes)
      names.push_back(axis.name);
    refuse_name(node, where, "an axis of `grid`", names);
  }

  static std::string value_named(const YamlNode& node, const SweepAxis& axis) {
    const std::string name = node.kind == Kind::kScalar ? node.text : line_of(node);
    std::vector<std::string_view> names;
    for (const SweepAxisValue& value : axis.values)
      names.push_back(value.name);
    if (std::find(names.begin(), names.end(), name) == names.end())
      refuse_name(node, "exclude." + axis.name, "a value of the axis", names);
    return name;
  }

  [[noreturn]] static void refuse_name(const YamlNode& node, const std::string& where,
                                       const std::string& what, const std::vector<std::string_view>& names) {
    fail_at(node.position, where,
            fmt::format("{}, expected {}: {}{}", found(node), what,
                        names.empty() ? "there is none" : join(names, ", "), did_you_mean(node.text, names)));
  }

  std::filesystem::path folder_;
  SweepSpec sweep_;
  ExperimentSpec scratch_;  ///< every value is read into it, as a check
  Positions positions_;
  UsageErrors errors_;
};

}  // namespace

SweepSpec read_sweep(const std::filesystem::path& file) {
  return SweepReader(file.parent_path()).read(read_yaml(file));
}

SweepSpec parse_sweep(const std::string& text, const std::string& source_name) {
  return SweepReader(std::filesystem::path(source_name).parent_path())
      .read(parse_yaml(text, {.source = source_name, .line = 1, .column = 1}));
}

}  // namespace sdp
