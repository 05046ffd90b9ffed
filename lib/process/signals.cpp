#include "process/signals.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>

namespace sdp {
namespace {

enum class Phase : std::sig_atomic_t { kBeforeTraining, kRemember, kIgnore };

volatile std::sig_atomic_t phase = 0;
volatile std::sig_atomic_t code_before_training = 0;
volatile std::sig_atomic_t wakes = -1;  // descriptor
volatile std::sig_atomic_t is_requested = 0;
volatile std::sig_atomic_t requested_at_ms = 0;

/// A clock with an arbitrary origin; only differences are meaningful.
uint32_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint32_t>(now.tv_sec) * 1000U + static_cast<uint32_t>(now.tv_nsec / 1'000'000);
}

void on_signal(int signal) {
  const int error_before = errno;
  switch (static_cast<Phase>(phase)) {
    case Phase::kBeforeTraining:
      end_before_training(code_before_training, /*says=*/true);
    case Phase::kIgnore:
      break;
    case Phase::kRemember:
      if (is_requested == 0) {
        requested_at_ms = static_cast<std::sig_atomic_t>(now_ms());
        is_requested = 1;
        eventfd_write(wakes, 1);
      } else if (now_ms() - static_cast<uint32_t>(requested_at_ms) > kSameRequest.count()) {
        std::signal(signal, SIG_DFL);
        std::raise(signal);
      }
  }
  errno = error_before;
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kStopSignals)
    sigaddset(&set, signal);
  return set;
}

}  // namespace

StopSignals::StopSignals(int exit_code) {
  if (wakes < 0) wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wakes < 0) throw std::system_error(errno, std::generic_category(), "no event descriptor");
  code_before_training = exit_code;
  for (const int signal : kStopSignals)
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void StopSignals::remember() {
  phase = static_cast<std::sig_atomic_t>(Phase::kRemember);
}

void StopSignals::ignore() {
  phase = static_cast<std::sig_atomic_t>(Phase::kIgnore);
}

void StopSignals::block() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ignore();
}

StopSignalsBlocked::StopSignalsBlocked() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

StopSignalsBlocked::~StopSignalsBlocked() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int StopSignals::descriptor() const {
  return wakes;
}

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
  timespec time{};
  if (deadline) {
    const auto left = std::max(Clock::duration::zero(), *deadline - Clock::now());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    time = {.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
  }
  const int signal = deadline ? sigtimedwait(&awaited_, nullptr, &time) : sigwaitinfo(&awaited_, nullptr);
  return signal > 0 ? std::optional<int>(signal) : std::nullopt;
}

void write_line(std::string_view text) {
  const auto put = [](std::string_view part) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part.data(), part.size());
  };
  if (isatty(STDERR_FILENO) == 1) put("\r\x1b[K");
  put(text);
  put("\n");
}

void end_before_training(int exit_code, bool says) {
  if (says)
    write_line(
        "sdp-train: stopped by a signal before training began; nothing was lost. Run the same command to "
        "start it again");
  _exit(exit_code);
}

}  // namespace sdp
