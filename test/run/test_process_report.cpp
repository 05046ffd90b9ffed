// What processes report to each other arrives with its bits.

#include <ATen/ATen.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "engine/engine_cases.h"
#include "run/logging_interval.h"
#include "test_device.h"

namespace sdp {
namespace {

TEST_CASE("reports and losses of all processes arrive bit by bit") {
  // As doubles: small ones are subnormal, 2^53 + 1 is none, and the last five are NaN, signaling or not, -0
  // and infinite.
  const std::vector<int64_t> numbers = {0,
                                        1,
                                        (int64_t{1} << 53) + 1,
                                        std::numeric_limits<int64_t>::max(),
                                        -1,
                                        0x7FF0000000000001,
                                        std::numeric_limits<int64_t>::min(),
                                        0x7FF0000000000000,
                                        -0x0010000000000001};
  for (const int64_t number : numbers)
    for (const int world : {1, 2})
      run_thread_ranks(
          world,
          [&](Communicator& comm) {
            const auto report_of = [&](int rank) {
              return ProcessReport{.save_is_due = number ^ rank, .waited_ms = 0.1 * rank, .counted = number};
            };
            const at::Tensor losses =
                at::tensor(std::vector<double>{1.5 + comm.rank(), std::nan("")}, at::kDouble);
            const GatheredReports all = gather(comm, report_of(comm.rank()), losses.to(comm.device()));
            expect(all.processes.size() == static_cast<size_t>(world), "processes");
            expect(all.losses.size() == 2 * all.processes.size(), "losses");
            for (int rank = 0; rank < world; ++rank) {
              const auto r = static_cast<size_t>(rank);
              expect(all.processes[r].save_is_due == (number ^ rank), "first number");
              expect(all.processes[r].counted == number, "last number");
              expect(all.processes[r].waited_ms == 0.1 * rank, "time");
              expect(all.losses[2 * r] == 1.5 + rank && std::isnan(all.losses[2 * r + 1]), "loss");
            }
          },
          Exchanges::kAtOnce, test_device());
}

}  // namespace
}  // namespace sdp
