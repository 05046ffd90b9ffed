#include "report/data_sets.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <set>
#include <string_view>

#include "spec/value_text.h"
#include "spec/walk.h"

namespace sdp {
namespace {

/// The path that a run reads, and the selected part of the data.
std::string place_of(const Run& run) {
  const DataSpec& data = run.spec.data;
  std::string place = fmt::format("{} {}", data.name(), data.path);
  data.set.visit([&]<class Set>(const Set& set) {
    for_each_value(set, "", [&](const std::string&, const FieldInfo& field, const auto& value) {
      // These keys select the data: they identify the data set and are not compared as settings.
      if (field.treatment.on_resume == OnResume::kFixed &&
          field.treatment.in_report == InReport::kNotCompared)
        place += fmt::format(" {}", yaml_text(value));
    });
  });
  return place;
}

/// Empty if unknown.
std::string content_of(const Run& run) {
  const RunHistory& history = run.history;
  if (history.training_data.hash.empty()) return "";
  return fmt::format("{} {} {}", run.spec.data.name(), history.training_data.hash, history.test_data.hash);
}

/// Candidate names of a data set, short ones first; the last one is unique.
using Names = std::array<std::string, 4>;

Names names_of(const Run& run, const std::string& key) {
  const std::string name(run.spec.data.name());
  return {name, fmt::format("{} in {}", name, run.spec.data.path),
          fmt::format("{} {}", name, run.history.training_data.hash), key};
}

/// The shortest candidate that is unique among the data sets, by key.
std::map<std::string, std::string> shortest(const std::map<std::string, Names>& names) {
  std::map<std::string, std::string> chosen;
  for (const auto& [key, candidates] : names)
    for (size_t i = 0; i < candidates.size() && !chosen.contains(key); ++i) {
      size_t same = 0;
      for (const auto& [other, others] : names)
        same += others[i] == candidates[i] ? 1 : 0;
      if (same == 1) chosen[key] = candidates[i];
    }
  return chosen;
}

}  // namespace

std::vector<std::string> name_data_sets(const std::vector<Run>& runs) {
  std::map<std::string, std::string> content_at;
  for (const Run& run : runs)
    if (const std::string content = content_of(run); !content.empty())
      content_at.emplace(place_of(run), content);
  std::vector<std::string> keys;
  std::map<std::string, Names> names;
  for (const Run& run : runs) {
    std::string key = content_of(run);
    if (key.empty()) {
      const auto known = content_at.find(place_of(run));
      key = known == content_at.end() ? place_of(run) : known->second;
    }
    keys.push_back(key);
    names.emplace(key, names_of(run, key));
  }
  const std::map<std::string, std::string> chosen = shortest(names);
  std::vector<std::string> result;
  for (const std::string& key : keys)
    result.push_back(chosen.at(key));
  return result;
}

}  // namespace sdp
