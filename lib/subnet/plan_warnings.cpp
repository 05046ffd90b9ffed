#include "subnet/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "subnet/depth.h"

namespace sdp {
namespace {

std::string cut_off_and_joined(std::vector<std::string> texts, const char* separator) {
  constexpr size_t kMostNamed = 8;
  if (texts.size() > kMostNamed) {
    texts.resize(kMostNamed);
    texts.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(texts, separator));
}

/// Ascending workers 0, 1, 2, 5 as "0-2,5".
std::string ranges(const std::vector<int>& workers) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < workers.size();) {
    size_t end = begin + 1;
    while (end < workers.size() && workers[end] == workers[end - 1] + 1)
      ++end;
    texts.push_back(end - begin == 1 ? fmt::format("{}", workers[begin])
                                     : fmt::format("{}-{}", workers[begin], workers[end - 1]));
    begin = end;
  }
  return cut_off_and_joined(std::move(texts), ",");
}

/// "0-3 | 4-5,7 | 6".
std::string groups_text(const std::vector<std::vector<int>>& groups) {
  std::vector<std::string> texts;
  for (const std::vector<int>& group : groups)
    texts.push_back(ranges(group));
  return cut_off_and_joined(std::move(texts), " | ");
}

/// Groups of workers that are connected by common units, each in ascending order. A worker without units is a
/// separate group.
std::vector<std::vector<int>> connected_groups(const SubnetPlan& plan) {
  std::vector<int> parent(plan.workers);  // a lower worker of the same group, or the worker itself
  std::iota(parent.begin(), parent.end(), 0);
  const auto lowest_of_group = [&](int worker) {
    while (parent[worker] != worker)
      worker = parent[worker] = parent[parent[worker]];
    return worker;
  };
  for (const Unit& unit : plan.units) {
    for (int owner : unit.owners) {
      const auto [low, high] = std::minmax({lowest_of_group(unit.owners.front()), lowest_of_group(owner)});
      parent[high] = low;
    }
  }
  std::vector<std::vector<int>> groups(plan.workers);  // by lowest worker
  for (int worker = 0; worker < plan.workers; ++worker)
    groups[lowest_of_group(worker)].push_back(worker);
  std::erase_if(groups, [](const std::vector<int>& group) { return group.empty(); });
  return groups;
}

/// Of a forward-masked plan of whole branches: the workers that have no branch of some stage. Empty if there
/// are none.
std::string lacking_stages(const SubnetPlan& plan, const std::vector<bool>& owns_units) {
  if (plan.construction != Construction::kBlock || plan.keeps_frozen_units()) return "";
  std::vector<std::vector<int>> lacking;  // by stage
  std::vector<std::set<int>> blocks;      // by stage
  const std::vector<int> stage = stages(plan.layout);
  for (size_t branch = 0; branch < stage.size(); ++branch) {
    blocks.resize(stage[branch] + 1);
    blocks.back().insert(plan.layout.branches[branch].block);
  }
  lacking.resize(blocks.size());
  for (int worker = 0; worker < plan.workers; ++worker) {
    if (!owns_units[worker]) continue;
    const std::vector<int> branches = depth_of(plan, worker).branches_by_stage;
    for (size_t s = 0; s < branches.size(); ++s)
      if (branches[s] == 0) lacking[s].push_back(worker);
  }
  std::vector<std::string> texts;
  int owners_needed = 1;
  for (size_t s = 0; s < lacking.size(); ++s) {
    if (!lacking[s].empty()) texts.push_back(fmt::format("stage {}: {}", s + 1, ranges(lacking[s])));
    const auto in_stage = static_cast<int>(blocks[s].size());
    owners_needed = std::max(owners_needed, (plan.workers + in_stage - 1) / in_stage);
  }
  if (texts.empty()) return "";
  return fmt::format(
      "workers without a branch in a stage: {}. {}", cut_off_and_joined(texts, "; "),
      plan.owners_range().first >= owners_needed
          ? "With assignment balanced every worker has a branch in every stage."
          : fmt::format("Every worker can have one from coverage {}/{} on.", owners_needed, plan.workers));
}

}  // namespace

std::vector<std::string> plan_warnings(const SubnetPlan& plan) {
  std::vector<bool> owns_units(plan.workers, false);
  for (const Unit& unit : plan.units)
    for (int owner : unit.owners)
      owns_units[owner] = true;
  std::vector<int> idle;
  for (int worker = 0; worker < plan.workers; ++worker)
    if (!owns_units[worker]) idle.push_back(worker);
  std::vector<std::vector<int>> groups = connected_groups(plan);
  std::erase_if(groups, [&](const std::vector<int>& group) { return !owns_units[group.front()]; });

  std::vector<std::string> warnings;
  if (!idle.empty())
    warnings.push_back(fmt::format(
        "{} {} {} no unit, only the shared parameters. With assignment balanced, a higher coverage or "
        "fewer workers, every worker may own a unit.",
        idle.size() == 1 ? "worker" : "workers", ranges(idle), idle.size() == 1 ? "owns" : "own"));
  if (const std::string text = lacking_stages(plan, owns_units); !text.empty()) warnings.push_back(text);
  if (groups.size() > 1 && plan.owners_range().second == 1) {
    warnings.push_back(
        fmt::format("every unit has one owner (coverage 1/{}): workers average the gradients of the shared "
                    "parameters only, not those of units.",
                    plan.workers));
  } else if (groups.size() > 1) {
    warnings.push_back(fmt::format(
        "{} groups of workers own no unit in common ({}): only the gradients of the shared parameters are "
        "averaged across groups. Another assignment, a higher coverage or smaller units may connect the "
        "groups.",
        groups.size(), groups_text(groups)));
  }
  return warnings;
}

}  // namespace sdp
