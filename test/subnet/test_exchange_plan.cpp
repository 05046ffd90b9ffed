#include <algorithm>
#include <optional>

#include "catch.h"
#include "spec/error.h"
#include "subnet/assignment_starts.h"
#include "subnet/exchange_plan.h"

namespace sdp {
namespace {

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

}  // namespace
}  // namespace sdp
