#pragma once

// Signals of a process that trains, and of one that waits for its children.

#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <string_view>

namespace sdp {

inline constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
/// A second signal within this time after the first counts as the same request: a launcher may relay a signal
/// that the scheduler has also sent to every process.
inline constexpr std::chrono::milliseconds kSameRequest{2000};

/// Handles SIGTERM, SIGINT, SIGHUP and SIGUSR1 from construction to the end of the process. A signal that was
/// ignored before (nohup) stays ignored; a pending blocked signal is delivered now.
///
/// Initially, before training starts, a signal prints a message and ends the process immediately with
/// `exit_code`.
/// Only one object per process: a signal's flags have to be static.
class StopSignals {
 public:
  explicit StopSignals(int exit_code);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From now on, the first signal makes descriptor() readable. A second signal more than 2 s later ends the
  /// process as it does by default (kSameRequest).
  void remember();
  /// From now on, signals are ignored: everything is saved, and the process ends with its own exit code.
  void ignore();
  /// From now on, signals stay pending in this thread until AwaitedSignals takes them; without it they have
  /// no effect. Children start with them blocked.
  void block();

  /// Becomes readable when a stop is requested, and stays readable.
  int descriptor() const;
};

/// During its lifetime, blocks the signals in this thread, and permanently in threads started meanwhile, such
/// as those of CUDA's driver: a signal that a launcher waits for must not be delivered to them.
class StopSignalsBlocked {
 public:
  StopSignalsBlocked();
  ~StopSignalsBlocked();
  StopSignalsBlocked(const StopSignalsBlocked&) = delete;
  StopSignalsBlocked& operator=(const StopSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

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

/// Writes a line to stderr immediately, replacing a progress line on a terminal. For a process that is about
/// to end. Async-signal-safe.
void write_line(std::string_view text);

/// Ends the process with this code. `says`: first prints on stderr that it was stopped before training began.
/// Async-signal-safe.
[[noreturn]] void end_before_training(int exit_code, bool says);

}  // namespace sdp
