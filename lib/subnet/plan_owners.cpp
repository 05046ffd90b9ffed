#include "subnet/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "spec/error.h"
#include "spec/text.h"
#include "subnet/assignment.h"
#include "subnet/depth.h"

namespace sdp {
namespace {

/// Groups of units with the same owners. With `unit: block`, the units with the same slice index in all
/// branches of a block form a group.
struct Groups {
  std::vector<int> of_unit;
  std::vector<int> family;  ///< by group: the branch that it is a slice of; with `unit: block`, the block
};

Groups groups_of(const SubnetPlan& plan, UnitKind kind) {
  Groups groups;
  std::map<std::pair<int, int>, int> group_of_key;
  int slice = 0;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const int branch = plan.units[u].branch;
    slice = u > 0 && plan.units[u - 1].branch == branch ? slice + 1 : 0;
    const int family = kind == UnitKind::kBlock ? plan.layout.branches[branch].block : branch;
    const auto [entry, is_new] =
        group_of_key.try_emplace({family, slice}, static_cast<int>(group_of_key.size()));
    if (is_new) groups.family.push_back(family);
    groups.of_unit.push_back(entry->second);
  }
  return groups;
}

AssignmentProblem assignment_problem(const SubnetPlan& plan, const Groups& groups,
                                     const std::vector<int>& owners_of_branch, uint64_t seed) {
  const std::vector<int>& group = groups.of_unit;
  AssignmentProblem problem;
  problem.workers = plan.workers;
  problem.owners.assign(groups.family.size(), 0);
  problem.seed = seed;
  problem.flops.assign(groups.family.size(), 0);
  problem.bytes.assign(groups.family.size(), 0);
  problem.flops_fixed = plan.layout.shared_flops.training();
  if (plan.construction == Construction::kNeuron)
    for (const BranchLayout& branch : plan.layout.branches)
      problem.flops_fixed += branch.unsliced_flops.training();
  problem.bytes_fixed = static_cast<double>(plan.layout.parameter_count());
  for (size_t u = 0; u < group.size(); ++u) {
    const double parameters = static_cast<double>(plan.unit_parameters(static_cast<int>(u)));
    problem.owners[group[u]] = owners_of_branch[plan.units[u].branch];
    problem.flops[group[u]] += plan.unit_flops(static_cast<int>(u)).training();
    problem.bytes[group[u]] += parameters;
    problem.bytes_fixed -= parameters;
  }
  return problem;
}

GroupDepth depth_of_groups(const SubnetPlan& plan, const Groups& groups, const std::vector<int>& owners) {
  if (plan.construction == Construction::kNeuron) return {.stage = groups.family};
  const int p = *std::ranges::min_element(owners);
  GroupDepth depth{.longest_gap = (plan.workers + p - 1) / p + 1};  // ceil(n/p) + 1
  const std::vector<int> stage = stages(plan.layout);
  for (size_t u = 0; u < plan.units.size(); ++u) {
    if (groups.of_unit[u] < static_cast<int>(depth.stage.size())) continue;  // of a group that has begun
    const int branch = plan.units[u].branch;
    depth.stage.push_back(stage[branch]);
    depth.block.push_back(plan.layout.branches[branch].block);
  }
  return depth;
}

/// How many of the slices of each family every worker owns: its capacity's share, rounded. Throws
/// UsageError if this leaves a slice without an owner.
std::vector<std::vector<int>> quotas_of(const SubnetPlan& plan, const SubnetworkSpec& spec,
                                        const Groups& groups) {
  std::vector<std::vector<int>> quotas(groups.family.back() + 1);
  for (int family = 0; family < static_cast<int>(quotas.size()); ++family) {
    const auto [begin, end] = std::equal_range(groups.family.begin(), groups.family.end(), family);
    const auto slices = static_cast<int>(end - begin);
    if (slices == 0) continue;
    for (const Coverage& capacity : spec.capacities)
      quotas[family].push_back(static_cast<int>(std::lround(value_of(capacity) * slices)));
    const int owned = std::accumulate(quotas[family].begin(), quotas[family].end(), 0);
    if (owned >= slices) continue;
    const auto first = std::ranges::find(groups.of_unit, static_cast<int>(begin - groups.family.begin()));
    const Unit& unit = plan.units[first - groups.of_unit.begin()];
    throw UsageError(fmt::format(
        "subnetwork.capacities: the workers own {} slices of {}, which has {}. Expected capacities that give "
        "every slice an owner: larger ones, or more slices (subnetwork.slices_per_branch).",
        owned, plan.layout.branches[unit.branch].name, slices));
  }
  return quotas;
}

/// Reads owner sets from a plan.json and matches them by branch name and hidden range.
/// `owners_of_branch`: expected numbers; 0 if any is.
void assign_from_file(SubnetPlan& plan, const std::string& path, const std::vector<int>& owners_of_branch) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("subnetwork.assignment_file: {}: {}", path, why));
  };
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    refuse("is not a regular file");
  std::ifstream file(path);
  if (!file) refuse("cannot be opened");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (const std::string wrong = wrong_content(text); !wrong.empty()) refuse(wrong);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("units") || !json["units"].is_array())
    refuse("is not a plan.json: expected an object with a list `units`");
  std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<int>> owners;
  for (size_t u = 0; u < json["units"].size(); ++u) {
    const auto& unit = json["units"][u];
    for (const char* key : {"branch", "begin", "end", "owners"})
      if (!unit.is_object() || !unit.contains(key))
        refuse(fmt::format("units[{}] lacks `{}`; expected branch, begin, end and owners", u, key));
    try {
      std::vector<int> set = unit["owners"].get<std::vector<int>>();
      std::sort(set.begin(), set.end());
      owners[{unit["branch"], unit["begin"], unit["end"]}] = set;
    } catch (const nlohmann::json::exception&) {
      refuse(fmt::format(
          "units[{}] is {}; expected branch as text, begin and end as whole numbers, and owners as a "
          "list of whole numbers",
          u, unit.dump()));
    }
  }
  for (Unit& unit : plan.units) {
    const std::string& branch = plan.layout.branches[unit.branch].name;
    const auto found = owners.find({branch, unit.begin, unit.end});
    if (found == owners.end())
      refuse(fmt::format("has no unit {}[{}:{}], which this model has", branch, unit.begin, unit.end));
    const std::vector<int>& set = found->second;
    const bool distinct = std::adjacent_find(set.begin(), set.end()) == set.end();
    const int expected = owners_of_branch[unit.branch];
    if (set.empty() || (expected > 0 && std::ssize(set) != expected) || !distinct || set.front() < 0 ||
        set.back() >= plan.workers)
      refuse(fmt::format("unit {} has owners [{}]; expected {}different workers in 0..{}", branch,
                         fmt::join(set, ", "), expected > 0 ? fmt::format("{} ", expected) : "",
                         plan.workers - 1));
    unit.owners = set;
  }
}

}  // namespace

void assign_owners(SubnetPlan& plan, const SubnetworkSpec& spec, const std::vector<int>& owners_of_branch,
                   uint64_t seed) {
  if (spec.assignment == Assignment::kFile)
    return assign_from_file(
        plan, spec.assignment_file,
        spec.capacities.empty() ? owners_of_branch : std::vector<int>(owners_of_branch.size(), 0));
  if (plan.units.empty()) return;
  const Groups groups = groups_of(plan, spec.unit);
  AssignmentProblem problem = assignment_problem(plan, groups, owners_of_branch, seed);
  problem.depth = depth_of_groups(plan, groups, problem.owners);
  if (spec.assignment == Assignment::kEqualUnits) problem.depth.stage.assign(groups.family.size(), 0);
  if (!spec.capacities.empty()) problem.depth.quotas = quotas_of(plan, spec, groups);
  const Owners of_group = spec.assignment == Assignment::kWindow   ? assign_window(problem)
                          : spec.assignment == Assignment::kRandom ? assign_random(problem)
                                                                   : assign_balanced(problem);
  const std::vector<MemberSet> owners(of_group.begin(), of_group.end());
  for (size_t u = 0; u < plan.units.size(); ++u)
    plan.units[u].owners = owners[groups.of_unit[u]];
}

}  // namespace sdp
