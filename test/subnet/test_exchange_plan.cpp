// Sets of processes, and the order in which exchanges begin and end, for buckets that are written by hand.

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "catch.h"
#include "spec/error.h"
#include "subnet/assignment_starts.h"
#include "subnet/exchange.h"
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

/// Four buckets. Parameter 1 is in buckets 0 and 1, and bucket 3 is read at branch 0, as bucket 2 is.
const BucketIndex kFour = {.parameters_of = {{.first_of = {0, 1}, .needed_before = -1},
                                             {.first_of = {2}, .needed_before = -1},
                                             {.first_of = {3}, .needed_before = 0},
                                             {.first_of = {4}, .needed_before = 0}},
                           .buckets_of = {{0}, {0, 1}, {1}, {2}, {3}}};

/// "+r3 -r3": the reduction of bucket 3 begins, and ends; g: gradients are gathered, v: values.
std::string text_of(const ExchangeEvents& events) {
  std::string text;
  for (const ExchangeEvent& event : events)
    text += (text.empty() ? "" : " ") + std::string(event.what == ExchangeEvent::What::kBegin ? "+" : "-") +
            "rgv"[static_cast<size_t>(event.kind)] + std::to_string(event.bucket);
  return text;
}

TEST_CASE("a bucket is reduced once its and all deeper buckets' gradients have arrived, two at a time") {
  ExchangeOrder order(kFour);
  for (int step = 0; step < 2; ++step) {
    order.begin_backward({0, 1, 2, 3, 4}, /*last=*/true);
    CHECK(text_of(order.gradient_ready(3)) == "");  // bucket 3 is deeper
    CHECK_FALSE(order.is_ready(4));
    CHECK(text_of(order.gradient_ready(4)) == "+r3 +r2");
    CHECK(order.is_ready(4));
    CHECK(text_of(order.gradient_ready(1)) == "");
    CHECK(text_of(order.gradient_ready(1)) == "");  // a second part
    CHECK(text_of(order.gradient_ready(2)) == "-r3 +r1");
    CHECK(text_of(order.gradient_ready(0)) == "-r2 +r0");
    CHECK(text_of(order.finish_reducing()) == "-r1 -r0");
  }
}

TEST_CASE("only the last pass of a step has its gradients reduced") {
  ExchangeOrder order(kFour);
  order.begin_backward({4}, /*last=*/false);
  CHECK(text_of(order.gradient_ready(4)) == "");
  order.begin_backward({4}, /*last=*/true);
  CHECK_FALSE(order.is_ready(4));
  // The pass has no gradients for the other buckets.
  CHECK(text_of(order.gradient_ready(4)) == "+r3 +r2 -r3 +r1 -r2 +r0");
  CHECK_THROWS_AS(order.gradient_ready(4), std::logic_error);
  CHECK(text_of(order.finish_reducing()) == "-r1 -r0");
}

TEST_CASE("gradients that have not arrived are reduced at the end") {
  ExchangeOrder order(kFour);
  CHECK_THROWS_AS(order.finish_reducing(), std::logic_error);  // no pass yet
  order.begin_backward({0, 1, 2, 3, 4}, /*last=*/true);
  CHECK(text_of(order.gradient_ready(4)) == "+r3");
  CHECK(text_of(order.finish_reducing()) == "+r2 -r3 +r1 -r2 +r0 -r1 -r0");
  CHECK_THROWS_AS(order.finish_reducing(), std::logic_error);  // none since then
}

TEST_CASE("averaged gradients are gathered from the first bucket on, two at a time") {
  CHECK(text_of(ExchangeOrder(kFour).gather_gradients()) == "+g0 +g1 -g0 +g2 -g1 +g3 -g2 -g3");
}

TEST_CASE("the forward pass waits for the values that it is about to read, and others follow") {
  ExchangeOrder order(kFour);
  CHECK(text_of(order.reach(2)) == "");
  for (int step = 0; step < 2; ++step) {
    CHECK(text_of(order.begin_gathering()) == "+v0 +v1");
    CHECK(text_of(order.reach(-1)) == "-v0 +v2 -v1 +v3");
    CHECK(text_of(order.reach(-1)) == "");
    CHECK(text_of(order.reach(0)) == "-v2 -v3");
    CHECK(text_of(order.reach(1)) == "");
  }
  CHECK(text_of(order.begin_gathering()) == "+v0 +v1");
  CHECK(text_of(order.reach(7)) == "-v0 +v2 -v1 +v3 -v2 -v3");
}

}  // namespace
}  // namespace sdp
