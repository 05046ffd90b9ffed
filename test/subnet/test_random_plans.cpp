// Invariants over many plans: random layouts, any n up to 64, any p, every regime and assignment, rules that
// mix them, and capacities.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "catch.h"
#include "small_plans.h"
#include "spec/json_fields.h"
#include "subnet/exchange.h"
#include "subnet/exchange_plan.h"
#include "subnet/plan.h"
#include "subnet/random_bits.h"
#include "subnet/spectral.h"
#include "temp_folder.h"

namespace sdp {
namespace {

constexpr int kPlans = 400;

/// One to eight branches, each with two or three sliced parameters and an unsliced one, with shared ones in
/// between.
ModelLayout random_layout(RandomBits& random) {
  ModelLayout layout;
  layout.name = "random";
  const auto add = [&](std::vector<int64_t> shape, std::optional<int> branch, std::optional<SliceRule> slice,
                       ParameterRole role = ParameterRole::kWeight) {
    layout.parameters.push_back({.name = "p" + std::to_string(layout.parameters.size()),
                                 .shape = std::move(shape),
                                 .role = role,
                                 .init = {},
                                 .branch = branch,
                                 .slice = slice});
  };
  const int64_t width = 1 + random.below(24);
  add({width, 3}, std::nullopt, std::nullopt);
  const int branches = 1 + random.below(8);
  const int branches_per_block = 1 + random.below(2);
  for (int b = 0; b < branches; ++b) {
    BranchLayout branch;
    branch.name = "b" + std::to_string(b);
    branch.block = b / branches_per_block;
    const bool has_heads = random.below(4) == 0;
    branch.granularity = has_heads ? 1 : 8;
    branch.hidden_width = has_heads ? 1 + random.below(12) : 64 + 8 * random.below(24);
    branch.flops = {.forward = 1.0 + random.below(1000),
                    .weight_gradient = 1.0 + random.below(1000),
                    .input_gradient = 1.0 + random.below(1000)};
    const int64_t head = has_heads ? 4 : 1;
    const int64_t hidden = branch.hidden_width * head;
    add({width}, b, std::nullopt, ParameterRole::kNorm);
    add({3 * hidden, width}, b, SliceRule{.dim = 0, .blocks = 3, .elements_per_hidden = head});
    if (random.below(2) == 0)
      add({hidden}, b, SliceRule{.dim = 0, .blocks = 1, .elements_per_hidden = head}, ParameterRole::kNorm);
    add({width, hidden}, b, SliceRule{.dim = 1, .blocks = 1, .elements_per_hidden = head});
    if (random.below(3) == 0) add({width, width}, std::nullopt, std::nullopt);
    layout.branches.push_back(branch);
  }
  add({7, width}, std::nullopt, std::nullopt);
  return layout;
}

template <class T>
T one_of(RandomBits& random, std::initializer_list<T> values) {
  return values.begin()[random.below(static_cast<int>(values.size()))];
}

/// What the branches of a plan are to have.
struct Expected {
  SubnetworkSpec spec;
  std::vector<int> owners;       ///< p by branch; not used with capacities
  std::vector<Masking> masking;  ///< by branch
};

Coverage random_coverage(RandomBits& random, int64_t workers) {
  return {std::to_string(1 + random.below(static_cast<int>(workers))) + "/" + std::to_string(workers)};
}

Expected random_subnetwork(RandomBits& random, const ModelLayout& layout) {
  SubnetworkSpec spec;
  spec.workers = 1 + random.below(64);
  spec.construction = one_of(random, {Construction::kBlock, Construction::kNeuron});
  spec.masking = one_of(random, {Masking::kForward, Masking::kBackward});
  spec.unit = one_of(random, {UnitKind::kBlock, UnitKind::kBranch});
  spec.assignment = one_of(random, {Assignment::kBalanced, Assignment::kWindow, Assignment::kRandom});
  // The search takes a large part of a second by design: only some plans use it, most with few workers.
  if (spec.assignment == Assignment::kBalanced) {
    if (random.below(10) > 0) spec.assignment = Assignment::kRandom;
    if (random.below(4) > 0) spec.workers = std::min<int64_t>(spec.workers, 8);
    if (spec.assignment == Assignment::kBalanced && spec.construction == Construction::kNeuron) {
      spec.capacities = {{"8/8"}};  // every slice has an owner
      while (std::ssize(spec.capacities) < spec.workers)
        spec.capacities.push_back({std::to_string(1 + random.below(8)) + "/8"});
    }
  }
  if (spec.capacities.empty()) spec.coverage = random_coverage(random, spec.workers);
  SubnetworkRule rule;  // for the first blocks
  if (spec.capacities.empty() && random.below(2) == 0) rule.coverage = random_coverage(random, spec.workers);
  rule.masking =
      one_of<std::optional<Masking>>(random, {std::nullopt, Masking::kForward, Masking::kBackward});
  const auto branches = static_cast<int>(layout.branches.size());
  int end = 1 + random.below(branches);
  while (end < branches && layout.branches[end].block == layout.branches[end - 1].block)
    ++end;
  rule.match = "b[0-" + std::to_string(end - 1) + "]";
  if (random.below(4) > 0) spec.rules.push_back(rule);
  Expected expected{.spec = spec, .owners = {}, .masking = {}};
  for (int b = 0; b < branches; ++b) {
    const SubnetworkRule own = b < end && !spec.rules.empty() ? rule : SubnetworkRule();
    expected.owners.push_back(std::stoi(own.coverage.value_or(spec.coverage).text));  // of p/n: p
    expected.masking.push_back(own.masking.value_or(spec.masking));
  }
  return expected;
}

/// Every worker owns its rounded share of the slices of each branch, or of each block's groups of slices.
bool has_capacities(const SubnetPlan& plan, const SubnetworkSpec& spec) {
  std::map<int, std::vector<MemberSet>> owners_of;  // by branch or block, then slice
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const auto& [branch, begin, end, owners] = plan.units[u];
    std::vector<MemberSet>& slices =
        owners_of[spec.unit == UnitKind::kBlock ? plan.layout.branches[branch].block : branch];
    const size_t slice = u - plan.first_unit_of(branch);
    if (slice == slices.size()) slices.push_back(owners);
    if (slices.at(slice) != owners) return false;
  }
  for (const auto& [family, slices] : owners_of) {
    const auto count = std::ssize(slices);
    for (int worker = 0; worker < plan.workers; ++worker) {
      const auto is_owned = [&](const MemberSet& owners) { return owners.contains(worker); };
      if (std::ranges::count_if(slices, is_owned) !=
          (count * std::stoi(spec.capacities[worker].text) + 4) / 8)
        return false;
    }
  }
  return true;
}

/// Every unit has its number of different owners, and every hidden unit of every branch is in exactly one
/// unit. The coverage of a branch and the plan is the share of hidden units and parameters that workers own.
bool has_owners_everywhere(const SubnetPlan& plan, const Expected& expected) {
  std::vector<std::vector<int>> owners_of;  // by branch and hidden unit
  for (const BranchLayout& branch : plan.layout.branches)
    owners_of.emplace_back(branch.hidden_width, 0);
  std::set<int> numbers;
  double owned_parameters = 0, parameters = 0;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const int branch = plan.units[u].branch;
    int owners = 0;
    for (int worker = 0; worker < plan.workers; ++worker)
      owners += plan.holding(worker, u) == Holding::kOwned ? 1 : 0;
    if (expected.spec.capacities.empty() && owners != expected.owners[branch]) return false;
    for (int64_t h = plan.units[u].begin; h < plan.units[u].end; ++h)
      owners_of[branch][h] += owners_of[branch][h] == 0 ? owners : -plan.workers;
    numbers.insert(owners);
    parameters += static_cast<double>(plan.unit_parameters(u));
    owned_parameters += static_cast<double>(plan.unit_parameters(u)) * owners / plan.workers;
  }
  for (size_t b = 0; b < owners_of.size(); ++b) {
    if (std::ranges::min(owners_of[b]) < 1) return false;
    const double owned = std::accumulate(owners_of[b].begin(), owners_of[b].end(), 0.0);
    const double all = static_cast<double>(owners_of[b].size()) * plan.workers;
    if (std::abs(plan.coverage(static_cast<int>(b)) - owned / all) > 1e-12) return false;
  }
  return std::abs(plan.coverage() - owned_parameters / parameters) < 1e-12 &&
         plan.owners_range() == std::pair(*numbers.begin(), *numbers.rbegin()) &&
         plan.owners_per_unit() == (numbers.size() == 1 ? std::optional(*numbers.begin()) : std::nullopt) &&
         (expected.spec.capacities.empty() || has_capacities(plan, expected.spec));
}

/// plan.json says the p of all units if it is one, and the masking of units that do not have that of most
/// branches. A plan whose owners are read from it, in any order, is the same plan.
bool publishes(const SubnetPlan& plan, const Expected& expected) {
  nlohmann::json json = nlohmann::json::parse(json_of(identity_of(plan)).dump());
  const std::string masking = json.at("masking");
  const auto has_masking = [&](Masking of_branch) { return name_of(of_branch) == masking; };
  if (2 * std::ranges::count_if(expected.masking, has_masking) < std::ssize(expected.masking)) return false;
  std::set<size_t> numbers;
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const Masking own = expected.masking[plan.units[u].branch];
    if (json.at("units")[u].value("masking", "") != (has_masking(own) ? "" : name_of(own))) return false;
    numbers.insert(plan.units[u].owners.size());
    std::ranges::reverse(json["units"][u]["owners"]);
  }
  if (json.value("owners_per_unit", size_t{0}) != (numbers.size() == 1 ? *numbers.begin() : 0)) return false;
  const TempFolder folder;
  SubnetworkSpec spec = expected.spec;
  spec.assignment = Assignment::kFile;
  spec.assignment_file = folder.write("plan.json", json.dump());
  return plan_hash(make_plan(plan.layout, spec, /*seed=*/1)) == plan_hash(plan);
}

/// A worker's parts of a branch, the owned one first, have the units that it owns or has frozen, and make up
/// the branch under backward masking. The units of a parameter have all of its elements.
bool parts_make_up_branches(const SubnetPlan& plan, const std::vector<Masking>& masking, int worker) {
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b) {
    const bool has_all = masking[b] == Masking::kBackward;
    int64_t owned = 0, frozen = 0;
    for (const BranchPart& part : plan.parts_of(worker, b)) {
      if (part.units.empty() || (frozen > 0 && !part.frozen)) return false;
      for (int unit : part.units) {
        if (plan.holding(worker, unit) != (part.frozen ? Holding::kFrozen : Holding::kOwned)) return false;
        (part.frozen ? frozen : owned) += plan.units[unit].end - plan.units[unit].begin;
      }
    }
    if (owned != plan.owned_width(worker, b) || frozen != plan.frozen_width(worker, b)) return false;
    if (frozen != (has_all ? plan.layout.branches[b].hidden_width - owned : 0)) return false;
    const bool has_some = plan.construction == Construction::kNeuron || has_all || owned > 0;
    if (plan.owns_any_of(worker, b) != (owned > 0) || plan.has_branch(worker, b) != has_some) return false;
  }
  size_t units = 0;
  for (const Holding holding : {Holding::kOwned, Holding::kFrozen, Holding::kAbsent})
    for (const int unit : plan.units_with(worker, holding)) {
      const bool is_backward = masking[plan.units[unit].branch] == Masking::kBackward;
      if (plan.is_kept_frozen(unit) != is_backward) return false;
      if (holding == (is_backward ? Holding::kAbsent : Holding::kFrozen)) return false;
      ++units;
    }
  if (units != plan.units.size()) return false;
  for (const ParameterLayout& parameter : plan.layout.parameters) {
    int64_t elements = 0;
    for (int unit : plan.units_of(parameter))
      elements += plan.elements_of(parameter, unit);
    if (elements != parameter.elements()) return false;
  }
  return true;
}

/// Whether a process owns the unit: one of the consecutive workers that it runs does.
bool holds(const SubnetPlan& plan, int processes, int process, int unit) {
  const int workers_each = plan.workers / processes;
  for (int worker = process * workers_each; worker < (process + 1) * workers_each; ++worker)
    if (unit == kSharedUnit || plan.holding(worker, unit) == Holding::kOwned) return true;
  return false;
}

/// A segment's slices follow one another and have the bucket's type and decay.
bool fits_its_bucket(const Segment& segment, const Bucket& bucket, const ModelLayout& layout,
                     const ExchangeOptions& options) {
  int64_t offset = 0;
  for (const Slice& slice : segment.slices) {
    const ParameterLayout& parameter = layout.parameters[slice.parameter];
    const bool decays = options.decay_norms_and_biases || parameter.role == ParameterRole::kWeight;
    if (slice.offset != offset || bucket.decays != decays ||
        bucket.type != element_type(parameter, options.precision))
      return false;
    offset += slice.elements;
  }
  return segment.elements == offset;
}

/// Every element of a segment is updated by exactly one process, which holds it. The processes' shards are
/// even up to 64 bytes of the sum type, fp32.
bool is_divided_over_holders(const SubnetPlan& plan, const Segment& segment, int processes) {
  constexpr int64_t kAlignment = 64 / sizeof(float);
  int64_t next = 0;
  for (int process = 0; process < processes; ++process) {
    const bool is_holder = holds(plan, processes, process, segment.unit);
    if (segment.is_held_by(process) != is_holder) return false;
    if (!is_holder) continue;
    const int64_t shard = segment.shard_elements(process);
    const int64_t even = segment.elements / static_cast<int64_t>(segment.holders.size());
    if (segment.shard_begin(process) != next || next % kAlignment != 0) return false;
    if (std::abs(shard - even) > kAlignment) return false;
    next += shard;
  }
  return next == segment.elements;
}

/// A bucket keeps within its size unless a single slice is larger.
bool keeps_within_size(const Bucket& bucket, int64_t most_bytes) {
  int64_t elements = 0;
  size_t slices = 0;
  for (const Segment& segment : bucket.segments) {
    elements += segment.elements;
    slices += segment.slices.size();
  }
  return elements * bytes_of(bucket.type) <= most_bytes || slices == 1;
}

/// The buckets' parameters, those that no earlier bucket contains, and the branch that reads one first.
bool index_agrees(const SubnetPlan& plan, const ExchangePlan& exchanges) {
  const BucketIndex index = index_buckets(plan.layout, exchanges);
  const std::vector<int> depths = depths_of(plan.layout);
  std::vector<std::vector<int>> buckets_of(plan.layout.parameters.size());
  if (index.parameters_of.size() != exchanges.buckets.size()) return false;
  for (int b = 0; b < static_cast<int>(exchanges.buckets.size()); ++b) {
    std::set<int> parameters, first;
    int depth = std::numeric_limits<int>::max();
    for (const Segment& segment : exchanges.buckets[b].segments)
      for (const Slice& slice : segment.slices)
        parameters.insert(slice.parameter);
    for (int parameter : parameters) {
      if (buckets_of[parameter].empty()) first.insert(parameter);
      buckets_of[parameter].push_back(b);
      depth = std::min(depth, depths[parameter]);
    }
    std::vector<int> found = index.parameters_of[b].first_of;
    std::ranges::sort(found);
    if (!std::ranges::equal(found, first) || index.parameters_of[b].needed_before != depth) return false;
  }
  return index.buckets_of == buckets_of;
}

/// `from` sends to `to` exactly the elements that `to` expects, in every exchange of a bucket. On the
/// receiver's side: it averages a shard and needs the gradients of all holders of the segment; it holds the
/// segment, or has its values, and needs the shards of others.
bool messages_agree(const SubnetPlan& plan, const ExchangePlan& exchanges, int bucket, int from, int to) {
  const int processes = exchanges.slot_map.processes;
  int64_t gradients = 0;
  int64_t shards_of_held = 0;
  int64_t shards_of_others = 0;
  for (const Segment& segment : exchanges.buckets[bucket].segments) {
    const bool receiver_holds = holds(plan, processes, to, segment.unit);
    if (holds(plan, processes, from, segment.unit)) gradients += segment.shard_elements(to);
    if (receiver_holds) shards_of_held += segment.shard_elements(from);
    if (!receiver_holds && plan.masking[plan.units[segment.unit].branch] == Masking::kBackward)
      shards_of_others += segment.shard_elements(from);
  }
  if (from == to) gradients = shards_of_held = shards_of_others = 0;
  const bool shard = exchanges.options.shard;
  const auto elements = [&](ExchangeKind kind) {
    return test::message_elements(Exchange(exchanges, bucket, kind), from, to);
  };
  return elements(ExchangeKind::kReduceGradients) == gradients &&
         elements(ExchangeKind::kGatherGradients) == (shard ? 0 : shards_of_held) &&
         elements(ExchangeKind::kGatherValues) == (shard ? shards_of_held : 0) + shards_of_others;
}

/// The sums over a process's messages match the plan's figures for it.
bool sums_agree(const ExchangePlan& exchanges, int bucket, int process) {
  const BucketElements found = elements_on(exchanges, bucket, process);
  for (ExchangeKind kind : kExchangeKinds) {
    const Exchange exchange(exchanges, bucket, kind);
    Volume expected;
    for (int other = 0; other < exchanges.slot_map.processes; ++other) {
      expected.sent += test::message_elements(exchange, process, other);
      expected.received += test::message_elements(exchange, other, process);
    }
    if (found.of(kind).sent != expected.sent || found.of(kind).received != expected.received) return false;
  }
  return true;
}

bool exchange_plans_agree(const SubnetPlan& plan, RandomBits& random) {
  std::vector<int64_t> divisors;
  for (int64_t w = 1; w <= plan.workers; ++w)
    if (plan.workers % w == 0) divisors.push_back(w);
  // One worker per process in half of the cases.
  const int64_t processes =
      random.below(2) == 0 ? plan.workers : divisors[random.below(static_cast<int>(divisors.size()))];
  const SlotMap slot_map = make_slot_map(plan.workers, 1, processes);
  ExchangeOptions options;
  options.precision = one_of(random, {Precision::kFp32, Precision::kBf16});
  options.bucket_bytes = 2000 + random.below(100'000);
  options.decay_norms_and_biases = random.below(2) == 0;
  options.shard = random.below(2) == 0;
  const ExchangePlan exchanges = make_exchange_plan(plan, slot_map, options);
  if (!index_agrees(plan, exchanges)) return false;
  std::vector<int64_t> elements(plan.layout.parameters.size(), 0);
  for (int bucket = 0; bucket < static_cast<int>(exchanges.buckets.size()); ++bucket) {
    if (!keeps_within_size(exchanges.buckets[bucket], options.bucket_bytes)) return false;
    for (const Segment& segment : exchanges.buckets[bucket].segments) {
      for (const Slice& slice : segment.slices)
        elements[slice.parameter] += slice.elements;
      if (!fits_its_bucket(segment, exchanges.buckets[bucket], plan.layout, options)) return false;
      if (!is_divided_over_holders(plan, segment, slot_map.processes)) return false;
    }
    for (int i = 0; i < 3; ++i) {  // three senders to all others
      const int from = random.below(slot_map.processes);
      if (i == 0 && !sums_agree(exchanges, bucket, from)) return false;
      for (int to = 0; to < slot_map.processes; ++to)
        if (!messages_agree(plan, exchanges, bucket, from, to)) return false;
    }
  }
  return std::equal(elements.begin(), elements.end(), plan.layout.parameters.begin(),
                    [](int64_t found, const ParameterLayout& layout) { return found == layout.elements(); });
}

/// lambda2 is within its bound, and normalized by degree, >= (n - p) / (p (n - 1)) over the workers that own
/// a unit, where p is the largest number of owners. The figures themselves are compared with numpy in
/// test/cli/test_plan.py.
bool respects_bounds(const SubnetPlan& plan) {
  Owners owners;
  std::vector<double> parameters;
  std::set<int> active;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    owners.push_back(plan.units[u].owners.members());
    parameters.push_back(static_cast<double>(plan.unit_parameters(u)));
    active.insert(owners.back().begin(), owners.back().end());
  }
  const double p = plan.owners_range().second;
  const double n = static_cast<double>(active.size());
  for (const std::vector<double>& weights : {std::vector<double>(owners.size(), 1), parameters}) {
    const Spectrum spectrum = spectrum_of(owners, weights, plan.workers);
    if (spectrum.lambda2 < spectrum.lambda2_bound - 1e-9 || spectrum.lambda2 > 1 + 1e-12) return false;
    if (n > 1 && spectrum.lambda2_normalized < (n - p) / (p * (n - 1)) - 1e-12) return false;
  }
  return true;
}

TEST_CASE("400 random plans: owners as expected, schedules that agree, lambda2 within its bounds") {
  RandomBits random(2507);
  int64_t units = 0;
  int large = 0, mixed = 0;
  for (int i = 0; i < kPlans; ++i) {
    const ModelLayout layout = random_layout(random);
    const Expected expected = random_subnetwork(random, layout);
    const SubnetPlan plan = make_plan(layout, expected.spec, random.next());
    INFO("plan " << i << ": n = " << plan.workers << ", " << coverage_text(plan) << ", "
                 << name_of(plan.construction) << ", " << masking_text(plan) << ", " << plan.units.size()
                 << " units");
    REQUIRE(plan.masking == expected.masking);
    REQUIRE(has_owners_everywhere(plan, expected));
    REQUIRE(publishes(plan, expected));
    REQUIRE(parts_make_up_branches(plan, expected.masking, random.below(plan.workers)));
    REQUIRE(flops_share(plan) <= 1 + 1e-12);
    REQUIRE(exchange_plans_agree(plan, random));
    REQUIRE(respects_bounds(plan));
    units += static_cast<int64_t>(plan.units.size());
    large += plan.workers > 48 && plan.owners_range().second > 1 ? 1 : 0;
    mixed += !plan.owners_per_unit() && masking_text(plan) == "mixed" ? 1 : 0;
  }
  CHECK(units > 20 * kPlans);
  CHECK(large > kPlans / 8);
  CHECK(mixed > kPlans / 25);
}

}  // namespace
}  // namespace sdp
