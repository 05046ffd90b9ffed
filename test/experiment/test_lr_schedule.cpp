#include <cmath>

#include "catch.h"
#include "experiment/run_steps.h"

namespace sdp {
namespace {

ScheduleSpec schedule(ScheduleName name) {
  ScheduleSpec spec;
  spec.name = name;
  return spec;
}

TEST_CASE("cosine follows the half wave down to its floor") {
  ScheduleSpec spec = schedule(ScheduleName::kCosine);
  const RunLength length{.total_steps = 110, .warmup_steps = 10};
  CHECK(learning_rate(spec, 1, length, 35) == Approx((1 + std::sqrt(0.5)) / 2));
  CHECK(learning_rate(spec, 1, length, 60) == Approx(0.5));
  CHECK(learning_rate(spec, 1, length, 110) == Approx(0).margin(1e-15));
  spec.final_lr_factor = 0.2;
  CHECK(learning_rate(spec, 1, length, 60) == Approx(0.6));
  CHECK(learning_rate(spec, 1, length, 110) == Approx(0.2));
}

TEST_CASE("step decreases at its milestones") {
  const RunLength length{.total_steps = 100, .warmup_steps = 0};
  const ScheduleSpec spec = schedule(ScheduleName::kStep);  // by 0.1 at 0.5 and 0.75
  CHECK(learning_rate(spec, 1, length, 49) == Approx(1));
  CHECK(learning_rate(spec, 1, length, 50) == Approx(0.1));
  CHECK(learning_rate(spec, 1, length, 74) == Approx(0.1));
  CHECK(learning_rate(spec, 1, length, 75) == Approx(0.01));
}

}  // namespace
}  // namespace sdp
