#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "catch.h"
#include "small_plans.h"
#include "spec/error.h"
#include "subnet/assignment_starts.h"
#include "subnet/exchange_plan.h"

namespace sdp {
namespace {

using test::plan_of;

ExchangeOptions small_buckets(Precision precision) {
  ExchangeOptions options;
  options.precision = precision;
  options.bucket_bytes = 5000;
  options.decay_norms_and_biases = false;
  return options;
}

TEST_CASE("a member set behaves like a list of its numbers") {
  RandomBits random(1);
  for (const int numbers : {1, 63, 64, 65, 200, 1000}) {
    for (const int count : {0, 1, numbers / 2, numbers}) {
      const std::vector<int> members = random_owners(numbers, count, random);
      const MemberSet set = members;
      CHECK(set.size() == members.size());
      CHECK(std::equal(set.begin(), set.end(), members.begin(), members.end()));
      for (int number = 0; number < numbers + 130; ++number) {
        const auto found = std::find(members.begin(), members.end(), number);
        REQUIRE(set.contains(number) == (found != members.end()));
        REQUIRE(set.place_of(number) == (found == members.end() ? -1 : found - members.begin()));
      }
    }
  }
  CHECK_FALSE(MemberSet(std::vector{0, 1}).contains(-1));
  CHECK_THROWS_AS(MemberSet(std::vector{1, 1}), std::logic_error);
  CHECK_THROWS_AS(MemberSet(std::vector{2, 1}), std::logic_error);
  CHECK_THROWS_AS(MemberSet(std::vector{-1, 1}), std::logic_error);
}

TEST_CASE("slot map: W = R n, or W divides n") {
  CHECK(make_slot_map(8, 1, 8).slots_per_process() == 1);
  CHECK(make_slot_map(8, 1, 2).slots_of(1).front() == Slot{4, 0});
  CHECK(make_slot_map(4, 2, 8).slots_of(5) == std::vector<Slot>{{2, 1}});
  CHECK(make_slot_map(4, 2, 2).slots_of(0) == std::vector<Slot>{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  CHECK(make_slot_map(4, 2, 8).processes_of(std::vector{1, 3}) == std::vector<int>{2, 3, 6, 7});
  for (const auto& [n, r, w] :
       {std::tuple{8, 1, 3}, {8, 1, 16}, {4, 2, 16}, {4, 2, 6}, {4, 1, 0}, {4, 1, -1}}) {
    INFO(n << " workers, " << r << " replicas, " << w << " processes");
    CHECK_THROWS_AS(make_slot_map(n, r, w), UsageError);
  }
  CHECK_THROWS_WITH(make_slot_map(8, 2, 3), Catch::Matchers::Contains("(1, 2, 4, 8, 16)"));
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
    const ExchangePlan exchanges =
        make_exchange_plan(plan, make_slot_map(4, 1, 2), small_buckets(Precision::kFp32));
    REQUIRE(exchanges.buckets.size() > 3);
    const BucketIndex index = index_buckets(plan.layout, exchanges);
    const std::vector<BucketParameters>& parameters = index.parameters_of;
    REQUIRE(parameters.size() == exchanges.buckets.size());
    std::set<int> earlier;
    for (size_t b = 0; b < parameters.size(); ++b) {
      std::set<int> expected, first, depths;
      for (const Segment& segment : exchanges.buckets[b].segments)
        for (const Slice& slice : segment.slices)
          expected.insert(slice.parameter);
      std::set_difference(expected.begin(), expected.end(), earlier.begin(), earlier.end(),
                          std::inserter(first, first.end()));
      for (int parameter : expected)
        depths.insert(depths_of(plan.layout)[parameter]);
      const auto sorted = [](std::vector<int> values) {
        std::sort(values.begin(), values.end());
        return values;
      };
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
  const ExchangePlan exchanges = make_exchange_plan(plan, make_slot_map(4, 1, 4), {});
  for (const Bucket& bucket : exchanges.buckets) {
    for (const Segment& segment : bucket.segments) {
      const int64_t holders = static_cast<int64_t>(segment.holders.size());
      for (size_t i = 0; i < segment.holders.size(); ++i) {
        CHECK(segment.boundary(static_cast<int>(i)) % 16 == 0);
        CHECK(std::abs(segment.shard_elements(segment.holders[i]) - segment.elements / holders) <= 16);
      }
    }
  }
}

TEST_CASE("buckets keep within their size unless a single parameter is larger") {
  const SubnetPlan plan = plan_of(4, 2, 0);
  const ExchangePlan exchanges =
      make_exchange_plan(plan, make_slot_map(4, 1, 4), small_buckets(Precision::kFp32));
  CHECK(exchanges.buckets.size() > 6);
  for (const Bucket& bucket : exchanges.buckets) {
    int64_t bytes = 0;
    size_t slices = 0;
    for (const Segment& segment : bucket.segments) {
      bytes += segment.elements * 4;
      slices += segment.slices.size();
    }
    CHECK((bytes <= 5000 || slices == 1));
  }
}

}  // namespace
}  // namespace sdp
