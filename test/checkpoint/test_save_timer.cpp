#include "catch.h"
#include "checkpoint/save_timer.h"

using namespace sdp;
using std::chrono::seconds;

TEST_CASE("a checkpoint is due the given number of minutes after the last one", "[save_timer]") {
  const SaveTimer::Clock::time_point start{};
  SaveTimer timer(1.5, start);
  CHECK_FALSE(timer.is_due(start + seconds(89)));
  CHECK(timer.is_due(start + seconds(90)));
  CHECK(timer.is_due(start + seconds(1000)));
  timer.restart(start + seconds(1000));
  CHECK_FALSE(timer.is_due(start + seconds(1089)));
  CHECK(timer.is_due(start + seconds(1090)));
  CHECK_FALSE(SaveTimer(0, start).is_due(start + std::chrono::hours(1000)));
}
