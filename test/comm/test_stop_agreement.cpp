#include <deque>
#include <future>

#include "catch.h"
#include "comm/stop_agreement.h"

namespace sdp {
namespace {

void pass(StopAgreement& agreement, int64_t points) {
  for (int64_t point = 0; point < points; ++point)
    REQUIRE_FALSE(agreement.stops_here());
}

}  // namespace

TEST_CASE("all stop at the last point that any rank has passed") {
  std::deque<StopAgreement> world;
  for (int rank = 0; rank < 3; ++rank)
    world.emplace_back(rank, 3);
  const std::vector<int64_t> passed = {5, 2, 9};  // some are far ahead
  for (size_t rank = 0; rank < 3; ++rank)
    pass(world[rank], passed[rank]);
  CHECK(world[0].missing().empty());
  CHECK_FALSE(world[0].stops_within());
  for (size_t from = 0; from < 3; ++from) {
    const std::optional<int64_t> said = world[from].ask();
    CHECK(said == passed[from]);
    for (size_t to = 0; to < 3; ++to)
      if (to != from) world[to].receive(static_cast<int>(from), *said);
  }
  for (size_t rank = 0; rank < 3; ++rank) {
    for (int64_t point = passed[rank]; point < 9; ++point) {
      CHECK_FALSE(world[rank].stops_within());  // another rank has passed the next point
      CHECK_FALSE(world[rank].stops_here());
    }
    CHECK(world[rank].stops_within());
    CHECK(world[rank].stops_here());
    CHECK_FALSE(world[rank].is_before_training());
  }
}

TEST_CASE("a rank that has reported its points passes no further one before it has heard from all") {
  StopAgreement agreement(0, 3);
  pass(agreement, 1);
  CHECK(agreement.ask() == 1);
  CHECK_FALSE(agreement.ask());
  CHECK(agreement.missing() == std::vector<int>{1, 2});
  const bool within = GENERATE(false, true);
  auto stops = std::async(std::launch::async,
                          [&] { return within ? agreement.stops_within() : agreement.stops_here(); });
  agreement.receive(2, 1);
  CHECK(agreement.missing() == std::vector<int>{1});
  CHECK(stops.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  SECTION("and continues if another rank is ahead") {
    agreement.receive(1, 3);
    CHECK_FALSE(stops.get());
    pass(agreement, within ? 2 : 1);
    CHECK(agreement.stops_here());
  }
  SECTION("and stops if none is") {
    agreement.receive(1, 1);
    CHECK(stops.get());
  }
  SECTION("and continues, to fail, if another rank is lost") {
    agreement.abandon();
    CHECK_FALSE(stops.get());
  }
}

TEST_CASE("a process that has not begun training is distinguished from one in its first step") {
  StopAgreement agreement(1, 2);
  pass(agreement, 1);
  CHECK(agreement.ask() == 1);
  CHECK_FALSE(agreement.is_before_training());
  agreement.receive(0, StopAgreement::kNotBegun);
  CHECK(agreement.is_before_training());
}

}  // namespace sdp
