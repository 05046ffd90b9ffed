#include "experiment/resume.h"

#include <fmt/format.h>

#include <map>

#include "optim/registry.h"
#include "spec/error.h"
#include "spec/value_text.h"

namespace sdp {

std::vector<SpecChange> changes_between(ExperimentSpec saved, ExperimentSpec now) {
  unset_defaults(saved);
  unset_defaults(now);
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

bool is_same_division(const SubnetworkSpec& a, SubnetworkSpec b) {
  b.replicas = a.replicas;
  b.placement = a.placement;
  return a == b;
}

namespace {

/// Samples of a step over all workers and replicas, or tokens.
int64_t global_batch(const ExperimentSpec& spec) {
  return samples_per_step(spec) * spec.data.sequence_length();
}

}  // namespace

std::vector<std::string> check_resumable(const ExperimentSpec& saved, const ExperimentSpec& now) {
  std::string refused;
  std::vector<std::string> warnings;
  for (const SpecChange& change : changes_between(saved, now)) {
    if (change.on_resume == OnResume::kFixed) refused += (refused.empty() ? "" : ", ") + change.text();
    if (change.on_resume == OnResume::kRestOfRun)
      warnings.push_back(change.text() + ": the rest of the run follows the new value");
  }
  if (!refused.empty())
    throw UsageError(
        "--resume: the run was started with a different " + refused +
        ". Resume it with its own spec.yaml, or start a new run under another name. To start the new "
        "run from this one's weights, without its optimizer state: sdp-train export --run DIR --out "
        "F.safetensors, then sdp-train import --config NEW.yaml --from F.safetensors.");
  if (global_batch(saved) != global_batch(now) && saved.optimizer.lr() == now.optimizer.lr())
    warnings.push_back(fmt::format(
        "the global batch is {} {} (was {}), but optimizer.lr stays {}: with another batch, another learning "
        "rate may be better",
        global_batch(now), now.data.is_of_tokens() ? "tokens" : "samples", global_batch(saved),
        yaml_text(now.optimizer.lr())));
  return warnings;
}

void keep_length(const ExperimentSpec& saved, ExperimentSpec& now, LengthFrom from) {
  if (from == LengthFrom::kDefault) {
    now.train.epochs = saved.train.epochs;
    now.train.max_steps = saved.train.max_steps;
    return;
  }
  if (from == LengthFrom::kOverride || saved.train.max_steps.has_value() != now.train.max_steps.has_value())
    return;
  const bool in_steps = now.train.max_steps.has_value();
  if (in_steps ? *now.train.max_steps >= *saved.train.max_steps : now.train.epochs >= saved.train.epochs)
    return;
  const std::string key = in_steps ? "train.max_steps" : "train.epochs";
  const std::string was = in_steps ? yaml_text(*saved.train.max_steps) : yaml_text(saved.train.epochs);
  const std::string is = in_steps ? yaml_text(*now.train.max_steps) : yaml_text(now.train.epochs);
  throw UsageError("--resume: " + key + " is " + is + ", but the run was started with " + was +
                   ". Leave it out to keep the run's length, or add --set " + key + "=" + is +
                   " to end the run earlier.");
}

}  // namespace sdp
