#include "experiment/spec/resume.h"

#include <map>

#include "spec/error.h"
#include "spec/value_text.h"
#include "spec/walk.h"

namespace sdp {

std::vector<SpecChange> changes_between(const ExperimentSpec& saved, const ExperimentSpec& now) {
  std::map<std::string, std::string> before;
  for_each_value(saved, "", [&](const std::string& key, const FieldInfo&, const auto& value) {
    before[key] = yaml_text(value);
  });
  std::vector<SpecChange> changes;
  for_each_value(now, "", [&](const std::string& key, const FieldInfo& field, const auto& value) {
    const auto was = before.find(key);  // keys of another kind are not found, but its name has changed too
    if (const std::string text = yaml_text(value); was != before.end() && was->second != text)
      changes.push_back({key, was->second, text, field.treatment.on_resume});
  });
  return changes;
}

std::vector<std::string> check_resumable(const ExperimentSpec& saved, const ExperimentSpec& now) {
  std::string refused;
  std::vector<std::string> warnings;
  for (const SpecChange& change : changes_between(saved, now)) {
    if (change.on_resume == OnResume::kFixed) refused += (refused.empty() ? "" : ", ") + change.text();
    if (change.on_resume == OnResume::kRestOfRun)
      warnings.push_back(change.text() + ": the rest of the run follows the new value");
  }
  if (!refused.empty())
    throw UsageError("--resume: the run was started with a different " + refused +
                     ". Resume it with its own spec.yaml, or start a new run under another name.");
  return warnings;
}

}  // namespace sdp
