#include "subnet/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "spec/error.h"
#include "subnet/assignment.h"

namespace sdp {
namespace {

/// One unit for every branch: block construction takes the whole hidden width.
std::vector<Unit> block_units(const ModelLayout& layout) {
  std::vector<Unit> units;
  for (size_t b = 0; b < layout.branches.size(); ++b)
    units.push_back(
        {.branch = static_cast<int>(b), .begin = 0, .end = layout.branches[b].hidden_width, .owners = {}});
  return units;
}

/// Group number of every unit; units of one group get the same owners.
std::vector<int> assignment_groups(const SubnetPlan& plan, UnitKind kind) {
  std::vector<int> group(plan.units.size());
  std::map<int, int> group_of_block;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const int key =
        kind == UnitKind::kBlock ? plan.layout.branches[plan.units[u].branch].block : static_cast<int>(u);
    group[u] = group_of_block.try_emplace(key, static_cast<int>(group_of_block.size())).first->second;
  }
  return group;
}

AssignmentProblem assignment_problem(const SubnetPlan& plan, const std::vector<int>& group, uint64_t seed) {
  const int groups = group.empty() ? 0 : *std::max_element(group.begin(), group.end()) + 1;
  AssignmentProblem problem;
  problem.workers = plan.workers;
  problem.owners = plan.owners_per_unit;
  problem.seed = seed;
  problem.flops.assign(groups, 0);
  problem.bytes.assign(groups, 0);
  problem.flops_fixed = plan.layout.shared_flops.training();
  problem.bytes_fixed = static_cast<double>(plan.layout.parameter_count());
  for (size_t u = 0; u < group.size(); ++u) {
    const double parameters = static_cast<double>(plan.unit_parameters(static_cast<int>(u)));
    problem.flops[group[u]] += plan.unit_flops(static_cast<int>(u)).training();
    problem.bytes[group[u]] += parameters;
    problem.bytes_fixed -= parameters;
  }
  return problem;
}

/// Owner sets out of a plan.json, matched by branch name and hidden range.
void assign_from_file(SubnetPlan& plan, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(fmt::format("subnetwork.assignment_file: {}: {}", path, why));
  };
  std::ifstream file(path);
  if (!file) refuse("cannot be opened");
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("units") || !json["units"].is_array())
    refuse("is not a plan.json: expected an object with a list `units`");
  std::map<std::tuple<std::string, int64_t, int64_t>, OwnerSet> owners;
  for (const auto& unit : json["units"]) {
    try {
      OwnerSet set = unit.at("owners").get<OwnerSet>();
      std::sort(set.begin(), set.end());
      owners[{unit.at("branch"), unit.at("begin"), unit.at("end")}] = set;
    } catch (const nlohmann::json::exception& error) {
      refuse(fmt::format("a unit needs branch, begin, end and owners ({})", error.what()));
    }
  }
  for (Unit& unit : plan.units) {
    const std::string& branch = plan.layout.branches[unit.branch].name;
    const auto found = owners.find({branch, unit.begin, unit.end});
    if (found == owners.end())
      refuse(fmt::format("has no unit {}[{}:{}], which this model has", branch, unit.begin, unit.end));
    const OwnerSet& set = found->second;
    const bool distinct = std::adjacent_find(set.begin(), set.end()) == set.end();
    if (static_cast<int>(set.size()) != plan.owners_per_unit || !distinct || set.front() < 0 ||
        set.back() >= plan.workers)
      refuse(fmt::format("unit {} has owners [{}]; expected {} different workers out of 0..{}", branch,
                         fmt::join(set, ", "), plan.owners_per_unit, plan.workers - 1));
    unit.owners = set;
  }
}

void assign(SubnetPlan& plan, const SubnetworkSpec& spec, uint64_t seed) {
  if (spec.assignment == Assignment::kFile) {
    assign_from_file(plan, spec.assignment_file);
    return;
  }
  const std::vector<int> group = assignment_groups(plan, spec.unit);
  const AssignmentProblem problem = assignment_problem(plan, group, seed);
  const std::vector<OwnerSet> owners = spec.assignment == Assignment::kBalanced ? assign_balanced(problem)
                                       : spec.assignment == Assignment::kWindow ? assign_window(problem)
                                                                                : assign_random(problem);
  for (size_t u = 0; u < plan.units.size(); ++u)
    plan.units[u].owners = owners[group[u]];
}

void check_invariants(const SubnetPlan& plan) {
  std::vector<int64_t> covered(plan.layout.branches.size(), 0);
  for (const Unit& unit : plan.units) {
    if (unit.begin != covered[unit.branch] || unit.end <= unit.begin)
      throw std::logic_error("units of branch " + plan.layout.branches[unit.branch].name + " leave a gap");
    covered[unit.branch] = unit.end;
    if (static_cast<int>(unit.owners.size()) != plan.owners_per_unit ||
        std::adjacent_find(unit.owners.begin(), unit.owners.end(), std::greater_equal<>()) !=
            unit.owners.end() ||
        unit.owners.front() < 0 || unit.owners.back() >= plan.workers)
      throw std::logic_error("a unit has not exactly p different owners");
  }
  for (size_t b = 0; b < covered.size(); ++b)
    if (covered[b] != plan.layout.branches[b].hidden_width)
      throw std::logic_error("branch " + plan.layout.branches[b].name + " is not covered by its units");
}

}  // namespace

Holding SubnetPlan::holding(int worker, int unit) const {
  const OwnerSet& set = owners(unit);
  if (std::binary_search(set.begin(), set.end(), worker)) return Holding::kOwned;
  return masking == Masking::kForward ? Holding::kAbsent : Holding::kFrozen;
}

const OwnerSet& SubnetPlan::owners(int unit) const {
  return unit == kSharedUnit ? everyone_ : units.at(unit).owners;
}

std::vector<int> SubnetPlan::units_of(const ParameterLayout& parameter) const {
  const bool divided = parameter.branch && (construction == Construction::kBlock || parameter.slice);
  if (!divided) return {kSharedUnit};
  std::vector<int> result;
  for (size_t u = 0; u < units.size(); ++u)
    if (units[u].branch == *parameter.branch) result.push_back(static_cast<int>(u));
  return result;
}

int64_t SubnetPlan::elements_of(const ParameterLayout& parameter, int unit) const {
  if (unit == kSharedUnit || construction == Construction::kBlock) return parameter.elements();
  const int64_t hidden = layout.branches[units.at(unit).branch].hidden_width;
  return parameter.elements() / hidden * (units[unit].end - units[unit].begin);
}

bool SubnetPlan::owns_any_of(int worker, int branch) const {
  for (int u = 0; u < static_cast<int>(units.size()); ++u)
    if (units[u].branch == branch && holding(worker, u) == Holding::kOwned) return true;
  return false;
}

std::vector<int> SubnetPlan::units_with(int worker, Holding wanted) const {
  std::vector<int> result;
  for (int u = 0; u < static_cast<int>(units.size()); ++u)
    if (holding(worker, u) == wanted) result.push_back(u);
  return result;
}

int64_t SubnetPlan::unit_parameters(int unit) const {
  int64_t count = 0;
  for (const ParameterLayout& parameter : layout.parameters) {
    if (parameter.branch != units.at(unit).branch) continue;
    if (construction == Construction::kBlock || parameter.slice) count += elements_of(parameter, unit);
  }
  return count;
}

Flops SubnetPlan::unit_flops(int unit) const {
  const Unit& u = units.at(unit);
  const BranchLayout& branch = layout.branches[u.branch];
  return branch.flops * (static_cast<double>(u.end - u.begin) / static_cast<double>(branch.hidden_width));
}

double SubnetPlan::worker_flops(int worker) const {
  double flops = layout.shared_flops.training();
  for (int u = 0; u < static_cast<int>(units.size()); ++u) {
    const Flops of_unit = unit_flops(u);
    const Holding has = holding(worker, u);
    if (has == Holding::kOwned) flops += of_unit.training();
    if (has == Holding::kFrozen) flops += of_unit.forward + of_unit.input_gradient;
  }
  return flops;
}

double SubnetPlan::dense_flops() const {
  Flops flops = layout.shared_flops;
  for (const BranchLayout& branch : layout.branches)
    flops += branch.flops;
  return flops.training();
}

double SubnetPlan::worker_activation_elements(int worker) const {
  double elements = layout.shared_activation_elements;
  std::vector<bool> present(layout.branches.size(), false);
  for (int u : units_with(worker, Holding::kOwned)) {
    const BranchLayout& branch = layout.branches[units[u].branch];
    elements += branch.activation_elements * static_cast<double>(units[u].end - units[u].begin) /
                static_cast<double>(branch.hidden_width);
    present[units[u].branch] = true;
  }
  for (size_t b = 0; b < present.size(); ++b)
    if (present[b]) elements += layout.branches[b].activation_elements_any;
  return elements;
}

SubnetPlan make_plan(const ModelLayout& layout, const SubnetworkSpec& spec, uint64_t seed) {
  SubnetPlan plan;
  plan.layout = layout;
  plan.workers = static_cast<int>(spec.workers);
  plan.owners_per_unit = static_cast<int>(owners_of(spec.coverage, spec.workers));
  plan.construction = spec.construction;
  plan.masking = spec.masking;
  plan.everyone_.resize(plan.workers);
  std::iota(plan.everyone_.begin(), plan.everyone_.end(), 0);
  if (spec.construction != Construction::kBlock || spec.masking != Masking::kForward)
    throw std::logic_error("this version plans block construction with forward masking only");
  plan.units = block_units(layout);
  assign(plan, spec, seed);
  check_invariants(plan);
  return plan;
}

}  // namespace sdp
