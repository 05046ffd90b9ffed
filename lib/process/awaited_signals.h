#pragma once

#include <chrono>
#include <csignal>
#include <optional>

namespace sdp {

/// Blocks the signals that a process with children waits for (SIGINT, SIGTERM, SIGUSR1, SIGCHLD, and SIGHUP
/// unless it is ignored, as under nohup) in the calling thread, and restores the mask and SIGCHLD's
/// disposition when it goes. Make it before other threads exist.
class AwaitedSignals {
 public:
  using Clock = std::chrono::steady_clock;

  AwaitedSignals();
  ~AwaitedSignals();
  AwaitedSignals(const AwaitedSignals&) = delete;
  AwaitedSignals& operator=(const AwaitedSignals&) = delete;

  /// The mask that children start with.
  const sigset_t& mask_before() const { return mask_before_; }

  /// The next signal, or nothing at the deadline.
  std::optional<int> wait(std::optional<Clock::time_point> deadline) const;

 private:
  sigset_t awaited_;
  sigset_t mask_before_;
  struct sigaction child_before_ {};
};

}  // namespace sdp
