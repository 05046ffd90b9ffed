#include "subnet/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "spec/error.h"
#include "spec/hash.h"
#include "spec/json_fields.h"

namespace sdp {
namespace {

/// Bounds of a branch's slices. They are as even as multiples of the granularity allow; the granularity is
/// halved while the width has fewer multiples than slices.
std::vector<int64_t> slice_bounds(const BranchLayout& branch, const SubnetworkSpec& spec) {
  const bool has_heads = branch.granularity == 1;
  const int64_t asked = spec.slices_per_branch.value_or(spec.workers);
  if (asked > branch.hidden_width && spec.slices_per_branch && !has_heads)
    throw UsageError(
        fmt::format("subnetwork.slices_per_branch: found {}, but the hidden width of {} is {}. Expected at "
                    "most {}.",
                    asked, branch.name, branch.hidden_width, branch.hidden_width));
  const int64_t slices = std::min(asked, branch.hidden_width);
  int64_t granularity = branch.granularity;
  while (granularity > 1 &&
         (branch.hidden_width % granularity != 0 || branch.hidden_width / granularity < slices))
    granularity /= 2;
  const int64_t grains = branch.hidden_width / granularity;
  std::vector<int64_t> bounds;
  for (int64_t i = 0; i <= slices; ++i)
    bounds.push_back(grains * i / slices * granularity);
  return bounds;
}

/// Largest number of entries of a plan: units times workers times replicas. A plan takes up to about 100
/// bytes per entry.
constexpr int64_t kMostPlanEntries = int64_t{1} << 25;

void check_entries(const ModelLayout& layout, const SubnetworkSpec& spec) {
  const int64_t slots = spec.workers * spec.replicas;
  int64_t units = 0;
  for (const BranchLayout& branch : layout.branches)
    units += spec.construction == Construction::kBlock
                 ? 1
                 : std::min(spec.slices_per_branch.value_or(spec.workers), branch.hidden_width);
  if (units * slots > kMostPlanEntries)
    throw UsageError(fmt::format(
        "subnetwork: {} units on {} workers x {} replicas are too many to plan; expected a product of at "
        "most {}. {} fewer workers or replicas.",
        units, spec.workers, spec.replicas, kMostPlanEntries,
        spec.construction == Construction::kNeuron ? "Lower subnetwork.slices_per_branch, or use" : "Use"));
}

/// Block construction: one unit per branch. Neuron construction: one unit per slice.
std::vector<Unit> units_of_layout(const ModelLayout& layout, const SubnetworkSpec& spec) {
  std::vector<Unit> units;
  for (int b = 0; b < static_cast<int>(layout.branches.size()); ++b) {
    const BranchLayout& branch = layout.branches[b];
    const std::vector<int64_t> bounds = spec.construction == Construction::kBlock
                                            ? std::vector<int64_t>{0, branch.hidden_width}
                                            : slice_bounds(branch, spec);
    for (size_t i = 0; i + 1 < bounds.size(); ++i)
      units.push_back({.branch = b, .begin = bounds[i], .end = bounds[i + 1], .owners = {}});
  }
  return units;
}

/// By branch: the first rule that matches it; -1 if none does. Throws UsageError that names every rule
/// without a branch, and blocks that rules would split.
std::vector<int> match_rules(const ModelLayout& layout, const SubnetworkSpec& spec) {
  std::vector<int> rule_of_branch;
  std::vector<int> branches_of(spec.rules.size());
  for (const BranchLayout& branch : layout.branches) {
    const auto matches = [&](const SubnetworkRule& rule) {
      return rule.match == SubnetworkRule::kStrided
                 ? branch.stream.input != branch.stream.output
                 : fnmatch(rule.match.c_str(), branch.name.c_str(), 0) == 0;
    };
    const auto first = std::ranges::find_if(spec.rules, matches);
    rule_of_branch.push_back(first == spec.rules.end() ? -1 : static_cast<int>(first - spec.rules.begin()));
    if (first != spec.rules.end()) ++branches_of[rule_of_branch.back()];
  }
  std::vector<std::string> wrong;
  for (size_t r = 0; r < spec.rules.size(); ++r)
    if (branches_of[r] == 0)
      wrong.push_back(fmt::format(
          "subnetwork.rules[{}].match: '{}' matches no branch that is left by the rules before it. The "
          "branches of {} have names such as {} and {}.",
          r, spec.rules[r].match, layout.name, layout.branches.front().name, layout.branches.back().name));
  for (size_t b = 1; b < layout.branches.size() && spec.unit == UnitKind::kBlock; ++b)
    if (layout.branches[b].block == layout.branches[b - 1].block &&
        rule_of_branch[b] != rule_of_branch[b - 1])
      wrong.push_back(fmt::format(
          "subnetwork.rules: {} and {} are branches of one block, but different rules apply to them. "
          "Expected one rule for both, or subnetwork.unit: branch, which gives every branch owners of its "
          "own.",
          layout.branches[b - 1].name, layout.branches[b].name));
  if (wrong.size() > 3) wrong.resize(3);
  if (!wrong.empty()) throw UsageError(fmt::format("{}", fmt::join(wrong, "\n")));
  return rule_of_branch;
}

double share_of_width(const BranchLayout& branch, int64_t width) {
  return static_cast<double>(width) / static_cast<double>(branch.hidden_width);
}

/// 1/C of every branch that workers lack. Throws UsageError if a parameter that all workers share acts on a
/// branch's output: it would be scaled in training, but not in the assembled model.
std::vector<double> inverse_scales(const SubnetPlan& plan) {
  for (const ParameterLayout& parameter : plan.layout.parameters)
    if (parameter.scales_branch_output && !plan.is_divided(parameter))
      throw UsageError(fmt::format(
          "subnetwork.branch_scale: inverse is not possible in construction {} of {}: {}, which acts on the "
          "output of a branch, is shared by all workers. Expected none, or construction block.",
          name_of(plan.construction), plan.layout.name, parameter.name));
  std::vector<double> scales;
  for (int branch = 0; branch < static_cast<int>(plan.layout.branches.size()); ++branch)
    scales.push_back(rule_of(plan.masking[branch]).not_owned == Holding::kAbsent ? 1 / plan.coverage(branch)
                                                                                 : 1);
  return scales;
}

void check_invariants(const SubnetPlan& plan) {
  std::vector<int64_t> covered(plan.layout.branches.size(), 0);
  for (const Unit& unit : plan.units) {
    if (unit.begin != covered[unit.branch] || unit.end <= unit.begin)
      throw std::logic_error("units of branch " + plan.layout.branches[unit.branch].name + " leave a gap");
    covered[unit.branch] = unit.end;
    if (unit.owners.empty() || unit.owners.back() >= plan.workers)
      throw std::logic_error("a unit does not have owners among the workers");
  }
  for (size_t b = 0; b < covered.size(); ++b)
    if (covered[b] != plan.layout.branches[b].hidden_width)
      throw std::logic_error("branch " + plan.layout.branches[b].name + " is not covered by its units");
}

}  // namespace

std::pair<int, int> SubnetPlan::owners_range() const {
  std::pair<int, int> range(workers, units.empty() ? workers : 0);
  for (const Unit& unit : units) {
    const auto owners = static_cast<int>(unit.owners.size());
    range = {std::min(range.first, owners), std::max(range.second, owners)};
  }
  return range;
}

std::optional<int> SubnetPlan::owners_per_unit() const {
  const auto [fewest, most] = owners_range();
  return fewest == most ? std::optional(most) : std::nullopt;
}

double SubnetPlan::coverage() const {
  if (const std::optional<int> p = owners_per_unit()) return static_cast<double>(*p) / workers;
  double owned = 0;
  double all = 0;
  for (int u = 0; u < static_cast<int>(units.size()); ++u) {
    const auto parameters = static_cast<double>(unit_parameters(u));
    owned += parameters * static_cast<double>(units[u].owners.size());
    all += parameters;
  }
  return owned / (all * workers);
}

double SubnetPlan::coverage(int branch) const {
  int64_t owned = 0;
  for (const int u : units_in(branch))
    owned += (units[u].end - units[u].begin) * static_cast<int64_t>(units[u].owners.size());
  return static_cast<double>(owned) / static_cast<double>(layout.branches[branch].hidden_width * workers);
}

bool SubnetPlan::is_kept_frozen(int unit) const {
  return unit != kSharedUnit && is_frozen_branch(units.at(unit).branch);
}

bool SubnetPlan::keeps_frozen_units() const {
  return std::ranges::any_of(
      masking, [](Masking of_branch) { return rule_of(of_branch).not_owned == Holding::kFrozen; });
}

Masking SubnetPlan::main_masking() const {
  const auto branches_with = [&](Masking wanted) { return std::ranges::count(masking, wanted); };
  return masking.empty() ? Masking() : *std::ranges::max_element(masking, {}, branches_with);
}

Holding SubnetPlan::holding(int worker, int unit) const {
  if (owners(unit).contains(worker)) return Holding::kOwned;
  return rule_of(masking.at(units[unit].branch)).not_owned;
}

const MemberSet& SubnetPlan::owners(int unit) const {
  return unit == kSharedUnit ? everyone_ : units.at(unit).owners;
}

std::vector<int> SubnetPlan::units_in(int branch) const {
  std::vector<int> result(first_unit_of(branch + 1) - first_unit_of(branch));
  std::iota(result.begin(), result.end(), first_unit_of(branch));
  return result;
}

int64_t SubnetPlan::elements_of(const ParameterLayout& parameter, int unit) const {
  return unit == kSharedUnit ? parameter.elements()
                             : elements_of_width(parameter, units.at(unit).end - units[unit].begin);
}

int64_t SubnetPlan::elements_of_width(const ParameterLayout& parameter, int64_t width) const {
  // In block construction the sizes of a branch's norms and biases need not be multiples of the hidden width.
  if (construction == Construction::kBlock) return width > 0 ? parameter.elements() : 0;
  return parameter.elements() / layout.branches[parameter.branch.value()].hidden_width * width;
}

int64_t SubnetPlan::owned_width(int worker, int branch) const {
  int64_t width = 0;
  for (int u = first_unit_of(branch); u < first_unit_of(branch + 1); ++u)
    if (holding(worker, u) == Holding::kOwned) width += units[u].end - units[u].begin;
  return width;
}

int64_t SubnetPlan::frozen_width(int worker, int branch) const {
  return is_frozen_branch(branch) ? layout.branches[branch].hidden_width - owned_width(worker, branch) : 0;
}

bool SubnetPlan::owns_any_of(int worker, int branch) const {
  return owned_width(worker, branch) > 0;
}

std::vector<BranchPart> SubnetPlan::parts_of(int worker, int branch) const {
  BranchPart owned{.frozen = false, .units = {}};
  BranchPart frozen{.frozen = true, .units = {}};
  for (int u = first_unit_of(branch); u < first_unit_of(branch + 1); ++u) {
    const Holding has = holding(worker, u);
    if (has == Holding::kOwned) owned.units.push_back(u);
    if (has == Holding::kFrozen) frozen.units.push_back(u);
  }
  std::vector<BranchPart> parts;
  if (!owned.units.empty()) parts.push_back(std::move(owned));
  if (!frozen.units.empty()) parts.push_back(std::move(frozen));
  return parts;
}

SubnetPlan SubnetPlan::of_worker(int worker) const {
  SubnetPlan own = *this;
  own.everyone_ = MemberSet({worker});
  for (Unit& unit : own.units)
    unit.owners = unit.owners.contains(worker) ? own.everyone_ : MemberSet();
  return own;
}

bool SubnetPlan::has_branch(int worker, int branch) const {
  return construction == Construction::kNeuron || is_frozen_branch(branch) || owns_any_of(worker, branch);
}

std::vector<int> SubnetPlan::units_with(int worker, Holding wanted) const {
  std::vector<int> result;
  for (int u = 0; u < static_cast<int>(units.size()); ++u)
    if (holding(worker, u) == wanted) result.push_back(u);
  return result;
}

int64_t SubnetPlan::unit_parameters(int unit) const {
  int64_t count = 0;
  for (const ParameterLayout& parameter : layout.parameters)
    if (parameter.branch == units.at(unit).branch && is_divided(parameter))
      count += elements_of(parameter, unit);
  return count;
}

Flops SubnetPlan::unit_flops(int unit) const {
  const Unit& u = units.at(unit);
  const BranchLayout& branch = layout.branches[u.branch];
  if (construction == Construction::kBlock) return branch.flops;
  return (branch.flops - branch.unsliced_flops) * share_of_width(branch, u.end - u.begin);
}

double SubnetPlan::worker_flops(int worker) const {
  double flops = layout.shared_flops.training();
  for (int u = 0; u < static_cast<int>(units.size()); ++u) {
    const Flops of_unit = unit_flops(u);
    const Holding has = holding(worker, u);
    if (has == Holding::kOwned) flops += of_unit.training();
    if (has == Holding::kFrozen) flops += of_unit.training_frozen();
  }
  if (construction == Construction::kBlock) return flops;
  for (int b = 0; b < static_cast<int>(layout.branches.size()); ++b) {
    const Flops& unsliced = layout.branches[b].unsliced_flops;
    if (unsliced.forward == 0) continue;
    const bool has_slices = is_frozen_branch(b) || owned_width(worker, b) > 0;
    flops += has_slices ? unsliced.training() : unsliced.forward;
  }
  return flops;
}

double SubnetPlan::dense_flops() const {
  Flops flops = layout.shared_flops;
  for (const BranchLayout& branch : layout.branches)
    flops += branch.flops;
  return flops.training();
}

SubnetPlan make_plan(const ModelLayout& layout, const SubnetworkSpec& spec, uint64_t seed) {
  SubnetPlan plan;
  plan.layout = layout;
  plan.workers = static_cast<int>(spec.workers);
  plan.construction = spec.construction;
  const std::vector<int> rule_of_branch = match_rules(layout, spec);
  std::vector<int> owners_of_branch;
  for (const int rule : rule_of_branch) {
    const SubnetworkRule own = rule < 0 ? SubnetworkRule() : spec.rules[rule];
    plan.masking.push_back(own.masking.value_or(spec.masking));
    owners_of_branch.push_back(
        static_cast<int>(owners_of(own.coverage.value_or(spec.coverage), spec.workers)));
  }
  std::vector<int> everyone(plan.workers);
  std::iota(everyone.begin(), everyone.end(), 0);
  plan.everyone_ = std::move(everyone);
  check_entries(layout, spec);
  plan.units = units_of_layout(layout, spec);
  plan.first_unit_.assign(layout.branches.size() + 1, 0);
  for (const Unit& unit : plan.units)
    ++plan.first_unit_[unit.branch + 1];
  std::partial_sum(plan.first_unit_.begin(), plan.first_unit_.end(), plan.first_unit_.begin());
  assign_owners(plan, spec, owners_of_branch, seed);
  check_invariants(plan);
  if (spec.branch_scale == TrainingScale::kInverse) plan.branch_scales = inverse_scales(plan);
  return plan;
}

SubnetPlan dense_plan(const SubnetPlan& plan, Construction construction) {
  SubnetworkSpec everything;
  everything.workers = plan.workers;
  everything.construction = construction;
  everything.assignment = Assignment::kWindow;
  SubnetPlan dense = make_plan(plan.layout, everything, 0);
  dense.masking = plan.masking;
  return dense;
}

double mean_worker_flops(const SubnetPlan& plan) {
  double sum = 0;
  for (int worker = 0; worker < plan.workers; ++worker)
    sum += plan.worker_flops(worker);
  return sum / plan.workers;
}

double flops_share(const SubnetPlan& plan) {
  return mean_worker_flops(plan) / plan.dense_flops();
}

bool has_subnetworks(const SubnetPlan& plan) {
  const auto everyone = plan.owners(kSharedUnit).size();
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u)
    if (!plan.is_kept_frozen(u) && plan.units[u].owners.size() < everyone) return true;
  return false;
}

std::string coverage_text(const SubnetPlan& plan) {
  const auto [fewest, most] = plan.owners_range();
  return fewest == most ? fmt::format("{}/{}", most, plan.workers)
                        : fmt::format("{:.3g} ({}/{} to {}/{})", plan.coverage(), fewest, plan.workers, most,
                                      plan.workers);
}

std::string masking_text(const SubnetPlan& plan) {
  const bool is_mixed = std::ranges::count(plan.masking, plan.main_masking()) < std::ssize(plan.masking);
  return is_mixed ? "mixed" : std::string(name_of(plan.main_masking()));
}

PlanIdentity identity_of(const SubnetPlan& plan) {
  PlanIdentity identity{.model = plan.layout.name,
                        .workers = plan.workers,
                        .owners_per_unit = plan.owners_per_unit(),
                        .coverage = plan.coverage(),
                        .construction = plan.construction,
                        .masking = plan.main_masking(),
                        .units = {}};
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const Unit& unit = plan.units[u];
    identity.units.push_back({.branch = plan.layout.branches[unit.branch].name,
                              .begin = unit.begin,
                              .end = unit.end,
                              .parameters = plan.unit_parameters(u),
                              .flops = plan.unit_flops(u).training(),
                              .masking = plan.masking[unit.branch] == identity.masking
                                             ? std::nullopt
                                             : std::optional(plan.masking[unit.branch]),
                              .owners = unit.owners.members()});
  }
  return identity;
}

std::string hash_of(const PlanIdentity& identity) {
  return xxh3_128(json_of(identity).dump());
}

std::string plan_hash(const SubnetPlan& plan) {
  return hash_of(identity_of(plan));
}

}  // namespace sdp
