#include <deque>
#include <future>
#include <thread>

#include "catch.h"
#include "comm/stop_agreement.h"

namespace sdp {
namespace {

/// Tells everybody what everybody has to tell.
void exchange(std::deque<StopAgreement>& world) {
  for (size_t from = 0; from < world.size(); ++from)
    if (const auto begun = world[from].ask())
      for (size_t to = 0; to < world.size(); ++to)
        if (to != from) world[to].hear(static_cast<int>(from), *begun);
}

}  // namespace

TEST_CASE("all stop after the last step that anybody has begun") {
  std::deque<StopAgreement> world;
  for (int rank = 0; rank < 3; ++rank)
    world.emplace_back(rank, 3);
  const std::vector<int64_t> begun = {5, 2, 9};  // some are far ahead
  for (size_t rank = 0; rank < 3; ++rank)
    for (int64_t step = 0; step < begun[rank]; ++step)
      REQUIRE_FALSE(world[rank].stops_before(step));
  CHECK(world[0].missing().empty());
  exchange(world);
  for (size_t rank = 0; rank < 3; ++rank) {
    for (int64_t step = begun[rank]; step < 9; ++step)
      CHECK_FALSE(world[rank].stops_before(step));
    CHECK(world[rank].stops_before(9));
    CHECK_FALSE(world[rank].is_before_training());
  }
}

TEST_CASE("who has told its steps begins no further one before it has heard all") {
  StopAgreement agreement(0, 3);
  CHECK_FALSE(agreement.stops_before(0));
  CHECK(agreement.ask() == 1);
  CHECK_FALSE(agreement.ask());
  CHECK(agreement.missing() == std::vector<int>{1, 2});
  auto stops = std::async(std::launch::async, [&] { return agreement.stops_before(1); });
  agreement.hear(2, 1);
  CHECK(agreement.missing() == std::vector<int>{1});
  CHECK(stops.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  SECTION("and goes on where another one is ahead") {
    agreement.hear(1, 3);
    CHECK_FALSE(stops.get());
    CHECK_FALSE(agreement.stops_before(2));
    CHECK(agreement.stops_before(3));
  }
  SECTION("and goes on, to fail, where another one is lost") {
    agreement.abandon();
    CHECK_FALSE(stops.get());
  }
}

TEST_CASE("a process whose training has not begun is told from one in its first step") {
  StopAgreement agreement(1, 2);
  CHECK_FALSE(agreement.stops_before(40));  // resumed
  CHECK(agreement.ask() == 41);
  CHECK_FALSE(agreement.is_before_training());
  agreement.hear(0, StopAgreement::kNotBegun);
  CHECK(agreement.is_before_training());
}

TEST_CASE("threads that take steps at their own pace stop at the same one, whoever asks and when") {
  constexpr int kWorld = 4;
  std::deque<StopAgreement> world;
  for (int rank = 0; rank < kWorld; ++rank) {
    world.emplace_back(rank, kWorld);
    world.back().stops_before(0);
  }
  std::vector<std::future<int64_t>> stopped;
  for (StopAgreement& own : world)
    stopped.push_back(std::async(std::launch::async, [&own] {
      int64_t step = 1;
      while (!own.stops_before(step))
        ++step;
      return step;
    }));
  exchange(world);
  const int64_t first = stopped.front().get();
  CHECK(first >= 1);
  for (int rank = 1; rank < kWorld; ++rank)
    CHECK(stopped[static_cast<size_t>(rank)].get() == first);
}

}  // namespace sdp
