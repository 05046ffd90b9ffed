#include "report/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "experiment/spec/regime.h"
#include "report/data_sets.h"
#include "spec/value_text.h"
#include "spec/walk.h"

namespace sdp {
namespace {

/// A key and its value.
struct Setting {
  std::string key;
  std::string value;  ///< including later values; empty: the run has no such setting
  InReport in_report = InReport::kCompared;
  bool is_changed = false;  ///< during the run

  bool operator==(const Setting&) const = default;
};
using Settings = std::vector<Setting>;
constexpr std::string_view kImported = "imported";

std::string plain_text(const std::string& yaml) {
  return yaml.size() >= 2 && yaml.starts_with('"') ? yaml.substr(1, yaml.size() - 2) : yaml;
}

std::string coverage_of(const Run& run) {
  if (run.plan.owners_per_unit == run.plan.workers) return "1";
  return fmt::format("{}/{}", run.plan.owners_per_unit, run.plan.workers);
}

/// Whether a step was trained, or the model evaluated, with the new value.
bool had_effect(const RunChange& change, const Run& run) {
  return change.step < run.step() || change.key.starts_with("eval.");
}

/// "0.1, 0.01 from step 10": the value of the key in each part of the run.
void add_changes(Setting& setting, const Run& run) {
  std::string value;
  for (const RunChange& change : run.history.changes) {
    if (change.key != setting.key) continue;
    if (value.empty()) value = plain_text(change.was);
    if (!had_effect(change, run)) continue;
    value += fmt::format(", {} from step {}", plain_text(change.now), change.step);
    setting.is_changed = true;
  }
  if (!value.empty()) setting.value = value;
}

Settings settings_of(const Run& run) {
  Settings settings;
  for_each_value(run.spec, "", [&](const std::string& key, const FieldInfo& field, const auto& value) {
    if (field.treatment.in_report != InReport::kNotCompared)
      settings.push_back({key, plain_text(yaml_text(value)), field.treatment.in_report});
  });
  for (Setting& setting : settings) {
    if (setting.key == "subnetwork.coverage") setting.value = coverage_of(run);  // 0.5 and 4/8 are the same
    add_changes(setting, run);
  }
  settings.push_back({"processes", std::to_string(run.plan.processes), InReport::kFollowsRegime});
  settings.push_back(
      {std::string(kImported), run.history.imported ? run.history.imported->xxh3_128 : "nothing"});
  for (const char* data : {"training_data", "test_data"}) {
    settings.push_back({data, ""});
    add_changes(settings.back(), run);
    if (!settings.back().is_changed) settings.back().value = "";
  }
  return settings;
}

std::string base_label(const Run& run) {
  const std::string method = method_of(run.spec);
  return coverage_of(run) == "1" ? method : method + " " + coverage_of(run);
}

struct Entry {
  Settings settings;
  std::string base;
  Group group;
};

/// Whether entries with the same base label (with `of_all`: any two entries) differ in a setting. Settings
/// that a run lacks are ignored: they follow from the name of its model, data set or optimizer, which differs
/// then.
bool differs(const std::vector<Entry>& entries, size_t setting, bool of_all) {
  std::map<std::string, std::string> first;
  for (const Entry& entry : entries) {
    const std::string& value = entry.settings[setting].value;
    if (value.empty()) continue;
    if (first.emplace(of_all ? "" : entry.base, value).first->second != value) return true;
  }
  return false;
}

/// Gives all entries the same settings in the same order: other kinds of models have other keys.
void align_settings(std::vector<Entry>& entries) {
  Settings all;
  const auto find = [](Settings& settings, const std::string& key) {
    return std::find_if(settings.begin(), settings.end(), [&](const Setting& s) { return s.key == key; });
  };
  for (const Entry& entry : entries) {
    auto place = all.begin();
    for (const Setting& setting : entry.settings) {
      auto known = find(all, setting.key);
      if (known == all.end()) known = all.insert(place, {setting.key, "", setting.in_report});
      place = std::next(known);
    }
  }
  for (Entry& entry : entries) {
    Settings aligned = all;
    for (Setting& setting : entry.settings)
      *find(aligned, setting.key) = std::move(setting);
    entry.settings = std::move(aligned);
  }
}

/// Indices of the settings that the names of groups must include.
std::vector<size_t> told_settings(const std::vector<Entry>& entries) {
  std::vector<size_t> told;
  for (size_t i = 0; !entries.empty() && i < entries[0].settings.size(); ++i) {
    const InReport use = entries[0].settings[i].in_report;
    const bool is_changed = std::any_of(entries.begin(), entries.end(),
                                        [&](const Entry& entry) { return entry.settings[i].is_changed; });
    if (is_changed || (use != InReport::kInRegime && differs(entries, i, use == InReport::kCompared)))
      told.push_back(i);
  }
  return told;
}

std::string last_part(const std::string& key) {
  return key.substr(key.rfind('.') + 1);
}

/// "width 32": keys are shortened to their last part if that is unique. Names of models and the like appear
/// without their key. Empty: nothing to show.
std::string setting_text(const Entry& entry, size_t setting, const std::vector<size_t>& told) {
  const std::string& key = entry.settings[setting].key;
  const std::string& value = entry.settings[setting].value;
  if (value.empty()) return "";
  if (key == kImported && entry.group.runs.front().history.imported)
    return fmt::format("{} {}", key, value.substr(0, 8));
  if (key == kImported) return "from scratch";
  if (key.ends_with(".name")) return value;
  const auto same = std::count_if(told.begin(), told.end(), [&](size_t other) {
    return last_part(entry.settings[other].key) == last_part(key);
  });
  return fmt::format("{} {}", same > 1 ? key : last_part(key), value);
}

std::string sweep_label(const Group& group) {
  const std::string& label = group.runs.front().sweep_label;
  const bool is_shared = std::all_of(group.runs.begin(), group.runs.end(),
                                     [&](const Run& run) { return run.sweep_label == label; });
  return is_shared ? label : "";
}

void name_groups(std::vector<Entry>& entries) {
  const std::vector<size_t> told = told_settings(entries);
  std::set<std::string> taken;
  for (Entry& entry : entries) {
    std::string label = sweep_label(entry.group);
    const bool is_of_sweep = !label.empty();
    if (!is_of_sweep) label = entry.base;
    for (const size_t setting : told) {
      const Setting& told_setting = entry.settings[setting];
      // Not covered by the sweep's labels.
      if (is_of_sweep && !told_setting.is_changed && told_setting.key != kImported) continue;
      if (const std::string text = setting_text(entry, setting, told); !text.empty())
        label += fmt::format(", {}", text);
    }
    // Labels from different sweeps may be equal.
    const std::string name = label;
    for (int number = 2; !taken.insert(label).second; ++number)
      label = fmt::format("{} #{}", name, number);
    entry.group.label = label;
    for (const Setting& setting : entry.settings)
      if (setting.is_changed) entry.group.changes.push_back(setting.key + " " + setting.value);
  }
}

/// The groups of the runs of one data set.
void add_groups(const std::string& data_set, std::vector<Run> runs, std::vector<Group>& groups) {
  std::vector<Entry> entries;
  for (Run& run : runs) {
    Settings settings = settings_of(run);
    auto entry = std::find_if(entries.begin(), entries.end(),
                              [&](const Entry& other) { return other.settings == settings; });
    if (entry == entries.end()) {
      entries.push_back({.settings = std::move(settings),
                         .base = base_label(run),
                         .group = {.data_set = data_set,
                                   .label = {},
                                   .regime = method_of(run.spec),
                                   .coverage = coverage_of(run)}});
      entry = std::prev(entries.end());
    }
    entry->group.runs.push_back(std::move(run));
  }
  align_settings(entries);
  name_groups(entries);
  for (Entry& entry : entries)
    groups.push_back(std::move(entry.group));
}

}  // namespace

Statistic statistic(const std::vector<double>& values) {
  std::vector<double> known = values;
  std::erase_if(known, [](double value) { return std::isnan(value); });
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  Statistic result{.mean = kUnknown, .std = kUnknown, .count = static_cast<int64_t>(known.size())};
  if (known.empty()) return result;
  const auto count = static_cast<double>(known.size());
  result.mean = std::accumulate(known.begin(), known.end(), 0.0) / count;
  if (known.size() < 2) return result;
  double squares = 0;
  for (const double value : known)
    squares += (value - result.mean) * (value - result.mean);
  result.std = std::sqrt(squares / (count - 1));
  return result;
}

size_t Group::unfinished() const {
  return static_cast<size_t>(
      std::count_if(runs.begin(), runs.end(), [](const Run& run) { return !run.is_finished(); }));
}

std::vector<Group> group_runs(std::vector<Run> runs) {
  const std::vector<std::string> data_sets = name_data_sets(runs);
  std::vector<std::pair<std::string, std::vector<Run>>> parts;
  for (size_t i = 0; i < runs.size(); ++i) {
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const auto& other) { return other.first == data_sets[i]; });
    if (part == parts.end()) part = parts.insert(parts.end(), {data_sets[i], {}});
    part->second.push_back(std::move(runs[i]));
  }
  std::vector<Group> groups;
  for (auto& [data_set, of_data_set] : parts)
    add_groups(data_set, std::move(of_data_set), groups);
  return groups;
}

}  // namespace sdp
