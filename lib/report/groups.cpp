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
constexpr std::string_view kFromScratch = "from scratch";

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

/// `spec`: of the run, or without keys that are not to be compared.
Settings settings_of(const Run& run, const ExperimentSpec& spec) {
  Settings settings;
  for_each_value(spec, "", [&](const std::string& key, const FieldInfo& field, const auto& value) {
    if (field.treatment.in_report != InReport::kNotCompared)
      settings.push_back({key, plain_text(yaml_text(value)), field.treatment.in_report});
  });
  for (Setting& setting : settings) {
    if (setting.key == "subnetwork.coverage") setting.value = coverage_of(run);  // 0.5 and 4/8 are the same
    add_changes(setting, run);
  }
  settings.push_back({"processes", std::to_string(run.plan.processes), InReport::kFollowsRegime});
  settings.push_back({std::string(kImported),
                      run.history.imported ? run.history.imported->xxh3_128 : std::string(kFromScratch)});
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

/// Runs with the same settings.
struct Entry {
  Settings settings;
  std::string base;
  std::vector<size_t> runs = {};  ///< indices
  std::string label = {};
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
std::string setting_text(const Settings& settings, size_t setting, const std::vector<size_t>& told) {
  const std::string& key = settings[setting].key;
  const std::string& value = settings[setting].value;
  if (value.empty()) return "";
  if (key == kImported && value == kFromScratch) return value;
  if (key == kImported) return fmt::format("{} {}", key, value.substr(0, 8));
  if (key.ends_with(".name")) return value;
  const auto same = std::count_if(told.begin(), told.end(), [&](size_t other) {
    return last_part(settings[other].key) == last_part(key);
  });
  return fmt::format("{} {}", same > 1 ? key : last_part(key), value);
}

/// The label that a sweep gives to all runs of an entry; empty: there is none.
std::string sweep_label(const Entry& entry, const std::vector<Run>& runs) {
  const std::string& label = runs[entry.runs.front()].sweep_label;
  const bool is_shared = std::all_of(entry.runs.begin(), entry.runs.end(),
                                     [&](size_t run) { return runs[run].sweep_label == label; });
  return is_shared ? label : "";
}

/// Adds the settings in which entries with the same label differ: sweeps may give the same one.
void tell_apart(std::vector<Entry>& entries) {
  std::map<std::string, std::vector<Entry>> same;
  for (const Entry& entry : entries)
    same[entry.label].push_back(entry);
  std::set<std::string> taken;
  for (Entry& entry : entries) {
    const std::vector<size_t> told = told_settings(same[entry.label]);
    for (const size_t setting : told)
      if (const std::string text = setting_text(entry.settings, setting, told);
          !text.empty() && !entry.settings[setting].is_changed && entry.settings[setting].key != kImported)
        entry.label += fmt::format(", {}", text);
    const std::string name = entry.label;
    for (int number = 2; !taken.insert(entry.label).second; ++number)
      entry.label = fmt::format("{} #{}", name, number);
  }
}

void name_entries(std::vector<Entry>& entries, const std::vector<Run>& runs) {
  const std::vector<size_t> told = told_settings(entries);
  for (Entry& entry : entries) {
    entry.label = sweep_label(entry, runs);
    const bool is_of_sweep = !entry.label.empty();
    if (!is_of_sweep) entry.label = entry.base;
    for (const size_t setting : told) {
      const Setting& told_setting = entry.settings[setting];
      // Not covered by the sweep's labels.
      if (is_of_sweep && !told_setting.is_changed && told_setting.key != kImported) continue;
      if (const std::string text = setting_text(entry.settings, setting, told); !text.empty())
        entry.label += fmt::format(", {}", text);
    }
  }
  tell_apart(entries);
}

/// The entries of the runs of one data set, named, in the order of their first runs.
std::vector<Entry> entries_of(const std::vector<Run>& runs, Settings (*settings)(const Run&)) {
  std::vector<Entry> entries;
  for (size_t run = 0; run < runs.size(); ++run) {
    Settings of_run = settings(runs[run]);
    auto entry = std::find_if(entries.begin(), entries.end(),
                              [&](const Entry& other) { return other.settings == of_run; });
    if (entry == entries.end())
      entry = entries.insert(entry, {.settings = std::move(of_run), .base = base_label(runs[run])});
    entry->runs.push_back(run);
  }
  align_settings(entries);
  name_entries(entries, runs);
  return entries;
}

Settings all_settings(const Run& run) {
  return settings_of(run, run.spec);
}

Settings settings_of_any_budget(const Run& run) {
  ExperimentSpec spec = run.spec;
  spec.train.epochs = {};
  spec.train.max_steps = {};
  return settings_of(run, spec);
}

/// The groups of the runs of one data set.
void add_groups(const std::string& data_set, std::vector<Run> runs, std::vector<Group>& groups) {
  const std::vector<Entry> entries = entries_of(runs, all_settings);
  std::vector<std::string> any_budget(runs.size());
  for (const Entry& entry : entries_of(runs, settings_of_any_budget))
    for (const size_t run : entry.runs)
      any_budget[run] = entry.label;
  for (const Entry& entry : entries) {
    const Run& first = runs[entry.runs.front()];
    Group& group = groups.emplace_back(Group{.data_set = data_set,
                                             .label = entry.label,
                                             .any_budget_label = any_budget[entry.runs.front()],
                                             .regime = method_of(first.spec),
                                             .coverage = coverage_of(first)});
    for (const Setting& setting : entry.settings)
      if (setting.is_changed) group.changes.push_back(setting.key + " " + setting.value);
    for (const size_t run : entry.runs)
      group.runs.push_back(std::move(runs[run]));
  }
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
