#pragma once

// Shows that a long step is still running.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "process/condition_variable.h"

namespace sdp {

/// Writes a line to stderr when a step has taken 10 s, and again whenever that time has doubled, from a
/// thread of its own. All steps may be short: then nothing is written.
class StepWatch {
 public:
  /// Writes nothing if `is_shown` is false.
  explicit StepWatch(bool is_shown);
  ~StepWatch();
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

  void begin(int64_t step);
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    int64_t step;
    Clock::time_point began;
    std::chrono::seconds next;
  };
  void watch();

  std::mutex mutex_;  ///< protects the following members
  std::condition_variable ends_;
  bool is_over_ = false;
  std::optional<Running> running_;
  std::thread thread_;
};

}  // namespace sdp
