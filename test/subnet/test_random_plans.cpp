// Invariants over many plans: random layouts, any n up to 64, any p, every regime and assignment.

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "catch.h"
#include "small_plans.h"
#include "subnet/assignment_starts.h"
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

SubnetworkSpec random_subnetwork(RandomBits& random) {
  SubnetworkSpec spec;
  spec.workers = 1 + random.below(64);
  spec.coverage.text =
      std::to_string(1 + random.below(static_cast<int>(spec.workers))) + "/" + std::to_string(spec.workers);
  spec.construction = one_of(random, {Construction::kBlock, Construction::kNeuron});
  spec.masking = one_of(random, {Masking::kForward, Masking::kBackward});
  spec.unit = one_of(random, {UnitKind::kBlock, UnitKind::kBranch});
  spec.assignment =
      one_of(random, {Assignment::kBalanced, Assignment::kWindow, Assignment::kRandom, Assignment::kFile});
  // The search for whole branches takes a large part of a second by design: only some plans use it, most with
  // fewer workers.
  if (spec.assignment == Assignment::kBalanced && spec.construction == Construction::kBlock) {
    if (random.below(8) > 0) spec.assignment = Assignment::kRandom;
    if (random.below(4) > 0) spec.workers = std::min<int64_t>(spec.workers, 12);
    spec.coverage.text =
        std::to_string(1 + random.below(static_cast<int>(spec.workers))) + "/" + std::to_string(spec.workers);
  }
  return spec;
}

/// A plan whose owners are those of a file made by somebody else: random owner sets in any order.
SubnetPlan published_plan(const ModelLayout& layout, SubnetworkSpec spec, RandomBits& random) {
  spec.assignment = Assignment::kWindow;
  const SubnetPlan window = make_plan(layout, spec, 0);
  nlohmann::json units = nlohmann::json::array();
  std::vector<MemberSet> published;
  for (const Unit& unit : window.units) {
    std::vector<int> workers = random_owners(window.workers, window.owners_per_unit, random);
    published.emplace_back(workers);
    std::rotate(workers.begin(), workers.begin() + random.below(window.owners_per_unit), workers.end());
    units.push_back({{"branch", layout.branches[unit.branch].name},
                     {"begin", unit.begin},
                     {"end", unit.end},
                     {"owners", workers}});
  }
  const TempFolder folder;
  spec.assignment = Assignment::kFile;
  spec.assignment_file = folder.write("plan.json", nlohmann::json{{"units", units}}.dump());
  const SubnetPlan plan = make_plan(layout, spec, random.next());
  for (size_t u = 0; u < published.size(); ++u)
    REQUIRE(plan.units[u].owners == published[u]);
  return plan;
}

SubnetPlan random_plan(RandomBits& random) {
  const ModelLayout layout = random_layout(random);
  const SubnetworkSpec spec = random_subnetwork(random);
  return spec.assignment == Assignment::kFile ? published_plan(layout, spec, random)
                                              : make_plan(layout, spec, random.next());
}

/// Exactly p different owners for every unit, and every hidden unit of every branch in exactly one unit.
bool has_p_owners_everywhere(const SubnetPlan& plan) {
  std::vector<std::vector<int>> covered;
  for (const BranchLayout& branch : plan.layout.branches)
    covered.emplace_back(branch.hidden_width, 0);
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    int owners = 0;
    for (int worker = 0; worker < plan.workers; ++worker)
      owners += plan.holding(worker, u) == Holding::kOwned ? 1 : 0;
    if (owners != plan.owners_per_unit) return false;
    for (int64_t h = plan.units[u].begin; h < plan.units[u].end; ++h)
      ++covered[plan.units[u].branch][h];
  }
  return std::all_of(covered.begin(), covered.end(), [](const std::vector<int>& branch) {
    return std::all_of(branch.begin(), branch.end(), [](int times) { return times == 1; });
  });
}

/// A worker's parts of a branch, the owned one first, have the units that it owns or has frozen, and make up
/// the branch under backward masking. The units of a parameter have all of its elements.
bool parts_make_up_branches(const SubnetPlan& plan, int worker) {
  const bool has_all = plan.masking == Masking::kBackward;
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b) {
    int64_t width = 0;
    bool is_frozen = false;
    for (const BranchPart& part : plan.parts_of(worker, b)) {
      if (is_frozen && !part.frozen) return false;
      is_frozen = part.frozen;
      for (int unit : part.units) {
        if (plan.holding(worker, unit) != (is_frozen ? Holding::kFrozen : Holding::kOwned)) return false;
        width += plan.units[unit].end - plan.units[unit].begin;
      }
    }
    if (width != (has_all ? plan.layout.branches[b].hidden_width : plan.owned_width(worker, b))) return false;
  }
  const auto owned = plan.units_with(worker, Holding::kOwned).size();
  const auto others = plan.units_with(worker, has_all ? Holding::kFrozen : Holding::kAbsent).size();
  if (owned + others != plan.units.size()) return false;
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
    if (!receiver_holds && plan.masking == Masking::kBackward)
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
/// a unit. The figures themselves are compared with numpy in test/cli/test_plan.py.
bool respects_bounds(const SubnetPlan& plan) {
  Owners owners;
  std::vector<double> parameters;
  std::set<int> active;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    owners.push_back(plan.units[u].owners.members());
    parameters.push_back(static_cast<double>(plan.unit_parameters(u)));
    active.insert(owners.back().begin(), owners.back().end());
  }
  const double p = plan.owners_per_unit;
  const double n = static_cast<double>(active.size());
  for (const std::vector<double>& weights : {std::vector<double>(owners.size(), 1), parameters}) {
    const Spectrum spectrum = spectrum_of(owners, weights, plan.workers);
    if (spectrum.lambda2 < spectrum.lambda2_bound - 1e-9 || spectrum.lambda2 > 1 + 1e-12) return false;
    if (n > 1 && spectrum.lambda2_normalized < (n - p) / (p * (n - 1)) - 1e-12) return false;
  }
  return true;
}

TEST_CASE("400 random plans: p owners everywhere, schedules that agree, lambda2 within its bounds") {
  RandomBits random(2507);
  int64_t units = 0;
  int large = 0;
  for (int i = 0; i < kPlans; ++i) {
    const SubnetPlan plan = random_plan(random);
    INFO("plan " << i << ": n = " << plan.workers << ", p = " << plan.owners_per_unit << ", "
                 << name_of(plan.construction) << ", " << name_of(plan.masking) << ", " << plan.units.size()
                 << " units");
    REQUIRE(has_p_owners_everywhere(plan));
    REQUIRE(parts_make_up_branches(plan, random.below(plan.workers)));
    REQUIRE(flops_share(plan) <= 1 + 1e-12);
    REQUIRE(exchange_plans_agree(plan, random));
    REQUIRE(respects_bounds(plan));
    units += static_cast<int64_t>(plan.units.size());
    large += plan.workers > 48 && plan.owners_per_unit > 1 ? 1 : 0;
  }
  CHECK(units > 20 * kPlans);
  CHECK(large > kPlans / 8);
}

}  // namespace
}  // namespace sdp
