#include "spec/resume.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "spec/error.h"
#include "spec/value_text.h"
#include "spec/visit.h"

namespace sdp {
namespace {

/// What a checkpoint's tensors and sample position depend on.
constexpr auto kFixed = std::to_array<std::string_view>(
    {"seed", "model.", "data.name", "data.train_files", "data.svhn_extra", "data.augment",
     "data.sequence_length", "data.mixup_alpha", "data.cutmix_alpha", "subnetwork.", "optimizer.name",
     "optimizer.momentum", "train.batch_size_per_worker", "train.accumulate_steps", "train.precision"});

/// Where and how it runs, not what it computes. Comes before what is fixed.
constexpr auto kFree = std::to_array<std::string_view>({"name",
                                                        "data.path",
                                                        "data.index_dir",
                                                        "data.loader_threads",
                                                        "data.prefetch_batches",
                                                        "data.location",
                                                        "subnetwork.placement",
                                                        "optimizer.shard",
                                                        "train.device",
                                                        "train.backend",
                                                        "train.deterministic",
                                                        "train.bucket_megabytes",
                                                        "train.release_gradients",
                                                        "train.checkpoint_activations",
                                                        "train.profile_steps",
                                                        "train.log_every_steps",
                                                        "train.collective_timeout_s",
                                                        "checkpoint.",
                                                        "eval.",
                                                        "output."});

template <size_t size>
bool matches(const std::array<std::string_view, size>& patterns, const std::string& key) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    return pattern.ends_with('.') ? key.starts_with(pattern) : key == pattern;
  });
}

SpecChange::Effect effect_of(const std::string& key) {
  if (matches(kFree, key)) return SpecChange::Effect::kNone;
  return matches(kFixed, key) ? SpecChange::Effect::kRefused : SpecChange::Effect::kRestOfRun;
}

template <SpecStruct Spec>
void collect_changes(const Spec& saved, const Spec& now, const std::string& prefix,
                     std::vector<SpecChange>& changes) {
  for_each_field<Spec>([&](const FieldInfo& field, auto member) {
    const std::string key = dotted(prefix, field.key);
    const auto& before = saved.*member;
    const auto& after = now.*member;
    if constexpr (SpecStruct<std::remove_cvref_t<decltype(before)>>) {
      collect_changes(before, after, key, changes);
    } else if (!(before == after)) {
      changes.push_back({key, yaml_text(before), yaml_text(after), effect_of(key)});
    }
  });
}

}  // namespace

std::vector<SpecChange> changes_between(const ExperimentSpec& saved, const ExperimentSpec& now) {
  std::vector<SpecChange> changes;
  collect_changes(saved, now, "", changes);
  return changes;
}

std::vector<std::string> check_resumable(const ExperimentSpec& saved, const ExperimentSpec& now) {
  std::string refused;
  std::vector<std::string> warnings;
  for (const SpecChange& change : changes_between(saved, now)) {
    if (change.effect == SpecChange::Effect::kRefused)
      refused += (refused.empty() ? "" : ", ") + change.text();
    if (change.effect == SpecChange::Effect::kRestOfRun)
      warnings.push_back(change.text() + ": the rest of the run follows the new value");
  }
  if (!refused.empty())
    throw UsageError("--resume: the run was started with another " + refused +
                     ". Resume with its spec.yaml, or start a run under another name.");
  return warnings;
}

}  // namespace sdp
