#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "catch.h"
#include "forecast/accounting.h"
#include "small_plans.h"
#include "spec/error.h"
#include "subnet/exchange.h"
#include "subnet/schedule.h"

namespace sdp {
namespace {

using test::mlp;
using test::plan_of;

ScheduleOptions small_buckets(Precision precision) {
  ScheduleOptions options;
  options.precision = precision;
  options.bucket_bytes = 5000;
  options.decay_norms_and_biases = false;
  return options;
}

TEST_CASE("placement: W = R n, or W divides n") {
  CHECK(make_placement(8, 1, 8).slots_per_process() == 1);
  CHECK(make_placement(8, 1, 2).slots_of(1).front() == Slot{4, 0});
  CHECK(make_placement(4, 2, 8).slots_of(5) == std::vector<Slot>{{2, 1}});
  CHECK(make_placement(4, 2, 2).slots_of(0) == std::vector<Slot>{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  CHECK(make_placement(4, 2, 8).processes_of(std::vector{1, 3}) == std::vector<int>{2, 3, 6, 7});
  for (const auto& [n, r, w] :
       {std::tuple{8, 1, 3}, {8, 1, 16}, {4, 2, 16}, {4, 2, 6}, {4, 1, 0}, {4, 1, -1}}) {
    INFO(n << " workers, " << r << " replicas, " << w << " processes");
    CHECK_THROWS_AS(make_placement(n, r, w), UsageError);
  }
  CHECK_THROWS_WITH(make_placement(8, 2, 3), Catch::Matchers::Contains("(1, 2, 4, 8, 16)"));
}

/// Every element of every parameter is in exactly one piece of a unit, and in exactly one part of a segment.
void check_complete(const SubnetPlan& plan, const Schedule& schedule) {
  std::vector<int64_t> elements(plan.layout.parameters.size(), 0);
  for (const Bucket& bucket : schedule.buckets) {
    for (const Segment& segment : bucket.segments) {
      int64_t offset = 0;
      for (const Piece& piece : segment.pieces) {
        const ParameterLayout& parameter = plan.layout.parameters[piece.parameter];
        CHECK(piece.offset == offset);
        CHECK(element_type(parameter, schedule.options.precision) == bucket.type);
        CHECK((parameter.role == ParameterRole::kWeight) == bucket.decays);
        offset += piece.elements;
        elements[piece.parameter] += piece.elements;
      }
      CHECK(segment.elements == offset);
      const auto holders = static_cast<int>(segment.holders.size());
      CHECK(segment.boundary(0) == 0);
      CHECK(segment.boundary(holders) == segment.elements);
      for (int i = 0; i < holders; ++i)
        CHECK(segment.boundary(i) <= segment.boundary(i + 1));
      int64_t parts = 0;
      for (int process = 0; process < schedule.placement.processes; ++process)
        parts += segment.share_elements(process);
      CHECK(parts == segment.elements);
    }
  }
  for (size_t i = 0; i < elements.size(); ++i)
    CHECK(elements[i] == plan.layout.parameters[i].elements());
}

TEST_CASE("a schedule has every element once, for any plan and placement") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const int64_t n = 1 + static_cast<int64_t>(seed % 8);
    const int64_t p = 1 + static_cast<int64_t>(seed * 7 % n);
    const SubnetPlan plan = plan_of(n, p, seed, seed % 3 == 0 ? Construction::kNeuron : Construction::kBlock,
                                    seed % 2 == 0 ? Masking::kBackward : Masking::kForward);
    for (int64_t w = 1; w <= n; ++w) {
      if (n % w != 0) continue;
      for (const Precision precision : {Precision::kFp32, Precision::kBf16})
        check_complete(plan, make_schedule(plan, make_placement(n, 1, w), small_buckets(precision)));
    }
  }
}

/// The number of elements that all processes send in all exchanges of a kind.
int64_t sent_by_all(const Schedule& schedule, ExchangeKind kind) {
  int64_t sent = 0;
  for (int bucket = 0; bucket < static_cast<int>(schedule.buckets.size()); ++bucket) {
    const Exchange exchange(schedule, bucket, kind);
    for (int from = 0; from < schedule.placement.processes; ++from) {
      CHECK(exchange.elements(from, from) == 0);
      for (int to = 0; to < schedule.placement.processes; ++to)
        sent += exchange.elements(from, to);
    }
  }
  return sent;
}

TEST_CASE(
    "p - 1 copies of a unit and n - 1 of a shared parameter are sent; back to all under backward masking") {
  const int n = 6;
  for (const Construction construction : {Construction::kBlock, Construction::kNeuron}) {
    for (const Masking masking : {Masking::kForward, Masking::kBackward}) {
      for (int p = 1; p <= n; ++p) {
        const SubnetPlan plan = plan_of(n, p, 3, construction, masking);
        int64_t units = 0;
        for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit)
          units += plan.unit_parameters(unit);
        const int64_t shared = plan.layout.parameter_count() - units;
        const int64_t among_owners = (p - 1) * units + (n - 1) * shared;
        const bool to_all = masking == Masking::kBackward;
        ScheduleOptions options = small_buckets(Precision::kFp32);
        const Schedule sharded = make_schedule(plan, make_placement(n, 1, n), options);
        CHECK(sent_by_all(sharded, ExchangeKind::kReduceGradients) == among_owners);
        CHECK(sent_by_all(sharded, ExchangeKind::kGatherGradients) == 0);
        CHECK(sent_by_all(sharded, ExchangeKind::kGatherValues) ==
              (to_all ? (n - 1) * plan.layout.parameter_count() : among_owners));
        options.shard = false;
        const Schedule whole = make_schedule(plan, make_placement(n, 1, n), options);
        CHECK(sent_by_all(whole, ExchangeKind::kReduceGradients) == among_owners);
        CHECK(sent_by_all(whole, ExchangeKind::kGatherGradients) == among_owners);
        CHECK(sent_by_all(whole, ExchangeKind::kGatherValues) == (to_all ? (n - p) * units : 0));
      }
    }
  }
}

TEST_CASE("a parameter outside of branches is read after the branch that precedes it") {
  ModelLayout layout;
  for (const std::optional<int> branch :
       {std::optional<int>(), {0}, {0}, std::optional<int>(), {1}, std::optional<int>()})
    layout.parameters.emplace_back().branch = branch;
  CHECK(depths_of(layout) == std::vector<int>{-1, 0, 0, 0, 1, 1});
}

TEST_CASE("a bucket's parameters, those that it contains first, and the branch that reads it first") {
  for (const Construction construction : {Construction::kBlock, Construction::kNeuron}) {
    const SubnetPlan plan = plan_of(4, 2, 1, construction);
    const Schedule schedule = make_schedule(plan, make_placement(4, 1, 2), small_buckets(Precision::kFp32));
    REQUIRE(schedule.buckets.size() > 3);
    const BucketIndex index = index_buckets(plan.layout, schedule);
    const std::vector<BucketParameters>& parameters = index.parameters_of;
    REQUIRE(parameters.size() == schedule.buckets.size());
    std::set<int> earlier;
    for (size_t b = 0; b < parameters.size(); ++b) {
      std::set<int> expected, first, depths;
      for (const Segment& segment : schedule.buckets[b].segments)
        for (const Piece& piece : segment.pieces)
          expected.insert(piece.parameter);
      std::set_difference(expected.begin(), expected.end(), earlier.begin(), earlier.end(),
                          std::inserter(first, first.end()));
      for (int parameter : expected)
        depths.insert(depths_of(plan.layout)[parameter]);
      const auto sorted = [](std::vector<int> values) {
        std::sort(values.begin(), values.end());
        return values;
      };
      CHECK(sorted(parameters[b].all) == std::vector<int>(expected.begin(), expected.end()));
      CHECK(sorted(parameters[b].first_of) == std::vector<int>(first.begin(), first.end()));
      CHECK(parameters[b].needed_before == *depths.begin());
      for (int parameter = 0; parameter < static_cast<int>(index.buckets_of.size()); ++parameter) {
        const std::vector<int>& buckets = index.buckets_of[parameter];
        CHECK(std::count(buckets.begin(), buckets.end(), static_cast<int>(b)) ==
              static_cast<int>(expected.count(parameter)));
      }
      earlier.insert(expected.begin(), expected.end());
    }
    CHECK(earlier.size() == plan.layout.parameters.size());
  }
}

TEST_CASE("parts are even up to 64 bytes of the sum type") {
  const SubnetPlan plan = plan_of(4, 3, 0);
  const Schedule schedule = make_schedule(plan, make_placement(4, 1, 4), {});
  for (const Bucket& bucket : schedule.buckets) {
    for (const Segment& segment : bucket.segments) {
      const int64_t holders = static_cast<int64_t>(segment.holders.size());
      for (size_t i = 0; i < segment.holders.size(); ++i) {
        CHECK(segment.boundary(static_cast<int>(i)) % 16 == 0);
        CHECK(std::abs(segment.share_elements(segment.holders[i]) - segment.elements / holders) <= 16);
      }
    }
  }
}

TEST_CASE("buckets keep within their size unless a single parameter is larger") {
  const SubnetPlan plan = plan_of(4, 2, 0);
  const Schedule schedule = make_schedule(plan, make_placement(4, 1, 4), small_buckets(Precision::kFp32));
  CHECK(schedule.buckets.size() > 6);
  for (const Bucket& bucket : schedule.buckets) {
    int64_t bytes = 0;
    size_t pieces = 0;
    for (const Segment& segment : bucket.segments) {
      bytes += segment.elements * 4;
      pieces += segment.pieces.size();
    }
    CHECK((bytes <= 5000 || pieces == 1));
  }
}

}  // namespace
}  // namespace sdp
