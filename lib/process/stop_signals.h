#pragma once

// What the signals that ask a run to stop do in a process that trains.

#include <array>
#include <csignal>

namespace sdp {

inline constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

/// Decides what SIGTERM, SIGINT, SIGHUP and SIGUSR1 do, from its making to the end of the process. A signal
/// that was ignored before (nohup) stays ignored; one that was blocked comes now.
///
/// At first, as nothing is trained yet: the process says so and ends with `exit_code`, at once.
/// One of a process; a signal's flags have to be static.
class StopSignals {
 public:
  explicit StopSignals(int exit_code);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// From now on: the first one makes descriptor() readable, for somebody who waits there. One that comes
  /// more than 2 s later ends the process as that signal does by default; one before is the same request, as
  /// a launcher relays what a scheduler may have sent to every process itself.
  void remember();
  /// From now on they do nothing: all is saved, and the process ends with the exit code that it has.
  void ignore();
  /// From now on they wait, in this thread, for somebody who takes them (AwaitedSignals), and do nothing
  /// where nobody does. Children start with them blocked.
  void block();

  /// Readable once a stop was asked for; it stays so.
  int descriptor() const;
};

/// While it lives, the signals wait in this thread, and so they do for good in threads that are started
/// meanwhile, as CUDA's driver starts some of its own: a signal that a launcher awaits must not end there.
class StopSignalsBlocked {
 public:
  StopSignalsBlocked();
  ~StopSignalsBlocked();
  StopSignalsBlocked(const StopSignalsBlocked&) = delete;
  StopSignalsBlocked& operator=(const StopSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Ends the process with this code. `says`: tells on stderr that it was stopped before training began.
/// Async-signal-safe.
[[noreturn]] void end_before_training(int exit_code, bool says);

}  // namespace sdp
