// The common profile of ranks with different rates, and what is said of them.

#include "catch.h"
#include "doctor/checks.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

DeviceProfiles profiles_with(double flops_per_s, double inside_bytes_per_s) {
  DeviceProfiles profiles;
  for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kBf16})
    profiles[precision] = {.name = "CPU",
                           .flops_per_s = flops_per_s,
                           .launch_s = 1e-6,
                           .memory_bytes_per_s = 100,
                           .inside_bytes_per_s = inside_bytes_per_s,
                           .memory_bytes = 1000};
  return profiles;
}

}  // namespace

TEST_CASE("the common profile has the slowest rank's rates, and memory rates where no link was measured") {
  const DeviceProfile slow =
      common_profiles({profiles_with(20, 7), profiles_with(10, 9)}).at(Precision::kFp32);
  CHECK(slow.flops_per_s == 10);
  CHECK(slow.inside_bytes_per_s == 7);
  CHECK(slow.between_bytes_per_s == 7);
  const DeviceProfile some =
      common_profiles({profiles_with(20, 0), profiles_with(10, 9)}).at(Precision::kFp64);
  CHECK(some.inside_bytes_per_s == 9);
  const DeviceProfile alone = common_profiles({profiles_with(20, 0)}).at(Precision::kBf16);
  CHECK(alone.inside_bytes_per_s == 50);  // a copy reads and writes
}

TEST_CASE("the slowest rank is named") {
  CHECK(contains(device_rates_text({profiles_with(20e9, 7), profiles_with(10e9, 9)}), "(rank 1) to"));
  CHECK(contains(link_rates_text({profiles_with(20, 7), profiles_with(10, 9)}), "B/s (rank 0) to"));
  CHECK_FALSE(contains(link_rates_text({profiles_with(20, 7), profiles_with(10, 9)}), "other hosts"));
}
