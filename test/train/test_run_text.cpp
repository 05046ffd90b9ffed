#include "train/run_text.h"

#include "catch.h"

using Catch::Matchers::Contains;

namespace sdp {

TEST_CASE("slow data is warned of from a fifth of a step on") {
  DataSpec data;
  data.loader_threads = 3;
  data.prefetch_batches = 7;
  CHECK_FALSE(slow_data_warning(100, 19.9, data));
  const auto warning = slow_data_warning(100, 20, data);
  REQUIRE(warning);
  for (const char* part : {"100.0 ms", "20.0 ms", "data.loader_threads (3)", "data.prefetch_batches (7)"})
    CHECK_THAT(*warning, Contains(part));
}

}  // namespace sdp
