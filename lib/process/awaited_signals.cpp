#include "process/awaited_signals.h"

#include <algorithm>
#include <ctime>

namespace sdp {

AwaitedSignals::AwaitedSignals() {
  sigemptyset(&awaited_);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD})
    sigaddset(&awaited_, signal);
  // A blocked signal is delivered even if it is ignored; under nohup it must stay ignored.
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&awaited_, SIGHUP);
  // If the parent ignores SIGCHLD, the kernel does not keep exit codes.
  struct sigaction keep {};
  keep.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &keep, &child_before_);
  pthread_sigmask(SIG_BLOCK, &awaited_, &mask_before_);
}

AwaitedSignals::~AwaitedSignals() {
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  sigaction(SIGCHLD, &child_before_, nullptr);
}

std::optional<int> AwaitedSignals::wait(std::optional<Clock::time_point> deadline) const {
  if (!deadline) {
    const int signal = sigwaitinfo(&awaited_, nullptr);
    return signal > 0 ? std::optional<int>(signal) : std::nullopt;
  }
  const auto left = std::max(Clock::duration::zero(), *deadline - Clock::now());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time = {.tv_sec = seconds.count(),
                         .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
  const int signal = sigtimedwait(&awaited_, nullptr, &time);
  return signal > 0 ? std::optional<int>(signal) : std::nullopt;
}

}  // namespace sdp
