// Invariants over many plans: random layouts, any n up to 64, any p, every regime and assignment.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "small_plans.h"
#include "subnet/exchange.h"
#include "subnet/exchange_plan.h"
#include "subnet/plan.h"
#include "subnet/random_bits.h"
#include "subnet/spectral.h"

namespace sdp {
namespace {

constexpr int kPlans = 1000;

/// One to eight branches, each with two or three sliced parameters and an unsliced one, with shared ones in
/// between.
ModelLayout random_layout(RandomBits& random) {
  ModelLayout layout;
  layout.name = "random";
  const auto add = [&](std::vector<int64_t> shape, std::optional<int> branch, std::optional<SliceRule> slice,
                       ParameterRole role = ParameterRole::kWeight) {
    ParameterLayout parameter;
    parameter.name = "p" + std::to_string(layout.parameters.size());
    parameter.shape = std::move(shape);
    parameter.role = role;
    parameter.branch = branch;
    parameter.slice = slice;
    layout.parameters.push_back(parameter);
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

/// An input of `assignment: file` made by somebody else: random owner sets in any order.
class PublishedPlan {
 public:
  PublishedPlan(const ModelLayout& layout, SubnetworkSpec spec, RandomBits& random) {
    spec.assignment = Assignment::kWindow;
    const SubnetPlan plan = make_plan(layout, spec, 0);
    nlohmann::json units = nlohmann::json::array();
    for (const Unit& unit : plan.units) {
      std::vector<int> workers(plan.workers);
      for (int k = 0; k < plan.workers; ++k)
        workers[k] = k;
      for (int k = plan.workers - 1; k > 0; --k)
        std::swap(workers[k], workers[random.below(k + 1)]);
      workers.resize(plan.owners_per_unit);
      units.push_back({{"branch", layout.branches[unit.branch].name},
                       {"begin", unit.begin},
                       {"end", unit.end},
                       {"owners", workers}});
    }
    std::ofstream(path) << nlohmann::json{{"units", units}};
  }
  ~PublishedPlan() { std::remove(path.c_str()); }

  const std::string path = "test_random_plans.json";
};

SubnetPlan random_plan(RandomBits& random) {
  const ModelLayout layout = random_layout(random);
  SubnetworkSpec spec = random_subnetwork(random);
  if (spec.assignment != Assignment::kFile) return make_plan(layout, spec, random.next());
  const PublishedPlan published(layout, spec, random);
  spec.assignment_file = published.path;
  return make_plan(layout, spec, random.next());
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

/// Whether a process runs a worker that owns the unit, from the definitions instead of the exchange plan.
class Holders {
 public:
  Holders(const SubnetPlan& plan, const SlotMap& slot_map) : plan_(plan) {
    for (int process = 0; process < slot_map.processes; ++process) {
      workers_.emplace_back();
      for (const Slot& slot : slot_map.slots_of(process))
        workers_.back().push_back(slot.worker);
    }
  }
  bool holds(int process, int unit) const {
    return std::any_of(workers_[process].begin(), workers_[process].end(), [&](int worker) {
      return unit == kSharedUnit || plan_.holding(worker, unit) == Holding::kOwned;
    });
  }

 private:
  const SubnetPlan& plan_;
  std::vector<std::vector<int>> workers_;
};

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

/// Every element of a segment is updated by exactly one process, which holds it.
bool is_divided_over_holders(const Segment& segment, const Holders& holders, int processes) {
  int64_t next = 0;
  for (int process = 0; process < processes; ++process) {
    const int64_t shard = segment.shard_elements(process);
    if (shard == 0) continue;
    if (!holders.holds(process, segment.unit) || segment.shard_begin(process) != next) return false;
    next += shard;
  }
  return next == segment.elements;
}

/// `from` sends to `to` exactly the elements that `to` expects, in every exchange of a bucket. On the
/// receiver's side: it averages a shard and needs the gradients of all holders of the segment; it holds the
/// segment, or has its values, and needs the shards of others.
bool messages_agree(const SubnetPlan& plan, const ExchangePlan& exchanges, int bucket, const Holders& holders,
                    int from, int to) {
  int64_t gradients = 0;
  int64_t shards_of_held = 0;
  int64_t shards_of_others = 0;
  for (const Segment& segment : exchanges.buckets[bucket].segments) {
    const bool holds = holders.holds(to, segment.unit);
    if (holders.holds(from, segment.unit)) gradients += segment.shard_elements(to);
    if (holds) shards_of_held += segment.shard_elements(from);
    if (!holds && plan.masking == Masking::kBackward) shards_of_others += segment.shard_elements(from);
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
  const Holders holders(plan, slot_map);
  std::vector<int64_t> elements(plan.layout.parameters.size(), 0);
  for (int bucket = 0; bucket < static_cast<int>(exchanges.buckets.size()); ++bucket) {
    for (const Segment& segment : exchanges.buckets[bucket].segments) {
      for (const Slice& slice : segment.slices)
        elements[slice.parameter] += slice.elements;
      if (!fits_its_bucket(segment, exchanges.buckets[bucket], plan.layout, options)) return false;
      if (!is_divided_over_holders(segment, holders, slot_map.processes)) return false;
    }
    for (int i = 0; i < 3; ++i) {  // three senders to all others
      const int from = random.below(slot_map.processes);
      if (i == 0 && !sums_agree(exchanges, bucket, from)) return false;
      for (int to = 0; to < slot_map.processes; ++to)
        if (!messages_agree(plan, exchanges, bucket, holders, from, to)) return false;
    }
  }
  return std::equal(elements.begin(), elements.end(), plan.layout.parameters.begin(),
                    [](int64_t found, const ParameterLayout& layout) { return found == layout.elements(); });
}

/// lambda2 >= (tr K - l1) / ((n - 1) l1) and, normalized by degree, >= (n - p) / (p (n - 1)) over the workers
/// that own a unit.
bool respects_bounds(const SubnetPlan& plan) {
  const int n = plan.workers;
  if (n == 1) return true;
  Owners owners;
  std::vector<double> one;
  std::vector<double> parameters;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    owners.push_back(plan.units[u].owners.members());
    one.push_back(1);
    parameters.push_back(static_cast<double>(plan.unit_parameters(u)));
  }
  for (const std::vector<double>& weights : {one, parameters}) {
    const std::vector<double> k = co_ownership(owners, weights, n);
    double trace = 0;
    int active = 0;
    for (int worker = 0; worker < n; ++worker) {
      trace += k[static_cast<size_t>(worker) * n + worker];
      active += k[static_cast<size_t>(worker) * n + worker] > 0 ? 1 : 0;
    }
    const double largest = symmetric_eigenvalues(k, n).front();  // test_spectral.cpp
    const Spectrum spectrum = spectrum_of(owners, weights, n);
    const double p = plan.owners_per_unit;
    const double bound = std::max(0.0, (trace - largest) / ((n - 1) * largest));
    if (std::abs(spectrum.lambda2_bound - bound) > 1e-9) return false;
    if (spectrum.lambda2 < bound - 1e-9 || spectrum.lambda2 > 1 + 1e-12) return false;
    if (active > 1 && spectrum.lambda2_normalized < (active - p) / (p * (active - 1)) - 1e-12) return false;
  }
  return true;
}

TEST_CASE("1,000 random plans: p owners everywhere, schedules that agree, lambda2 within its bounds") {
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
