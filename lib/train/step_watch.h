#pragma once

// Tells that a long step is still running.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/communicator.h"
#include "process/condition_variable.h"
#include "telemetry/log.h"

namespace sdp {

/// On rank 0, writes a line to stderr and to the log file when a step has taken 10 s, and again whenever that
/// time has doubled, from a thread of its own. All steps may be short: then nothing is written.
class StepWatch {
 public:
  StepWatch(const Logger& log, const Communicator& comm);
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

  const Logger log_;
  const Communicator& comm_;
  std::mutex mutex_;  ///< protects the following members
  std::condition_variable ends_;
  bool is_over_ = false;
  std::optional<Running> running_;
  std::thread thread_;
};

}  // namespace sdp
