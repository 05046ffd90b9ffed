#include "catch.h"
#include "experiment/run_steps.h"

namespace sdp {

// Cosine, linear and constant, with warm-up: test/run/test_resharding.cpp.
TEST_CASE("step decreases at its milestones") {
  const RunLength length{.total_steps = 100, .warmup_steps = 0};
  ScheduleSpec spec;
  spec.name = ScheduleName::kStep;  // by 0.1 at 0.5 and 0.75
  CHECK(learning_rate(spec, 1, length, 49) == Approx(1));
  CHECK(learning_rate(spec, 1, length, 50) == Approx(0.1));
  CHECK(learning_rate(spec, 1, length, 74) == Approx(0.1));
  CHECK(learning_rate(spec, 1, length, 75) == Approx(0.01));
}

}  // namespace sdp
