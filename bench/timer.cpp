#include "timer.h"

#include <fmt/format.h>

#include <ctime>

namespace sdp::bench {

namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

void measure(const std::string& name, int64_t count, double seconds, const std::function<void()>& round) {
  round();
  const double cpu_start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  const double wall_start = seconds_of(CLOCK_MONOTONIC);
  double cpu = 0;
  double wall = 0;
  int64_t done = 0;
  do {
    round();
    done += count;
    cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
    wall = seconds_of(CLOCK_MONOTONIC) - wall_start;
  } while (wall < seconds);
  fmt::print("{:<24} {:>12.1f} {:>12.1f}\n", name, static_cast<double>(done) / cpu,
             static_cast<double>(done) / wall);
}

}  // namespace sdp::bench
