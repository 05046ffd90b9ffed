#pragma once

#include <chrono>
#include <csignal>
#include <optional>

namespace sdp {

/// For a process that waits for its children: blocks SIGINT, SIGTERM, SIGUSR1, SIGCHLD, and SIGHUP unless it
/// is ignored (nohup), in the calling thread. The destructor restores the signal mask and SIGCHLD's
/// disposition. Construct it before other threads exist.
class AwaitedSignals {
 public:
  using Clock = std::chrono::steady_clock;

  AwaitedSignals();
  ~AwaitedSignals();
  AwaitedSignals(const AwaitedSignals&) = delete;
  AwaitedSignals& operator=(const AwaitedSignals&) = delete;

  /// The signal mask that children start with.
  const sigset_t& mask_before() const { return mask_before_; }

  /// The next signal, or std::nullopt at the deadline.
  std::optional<int> wait(std::optional<Clock::time_point> deadline) const;

 private:
  sigset_t awaited_;
  sigset_t mask_before_;
  struct sigaction child_before_ {};
};

}  // namespace sdp
