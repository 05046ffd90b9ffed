#include "train/preemption.h"

#include <array>
#include <csignal>
#include <ctime>

namespace sdp {
namespace {

constexpr std::array kSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

/// A launcher relays a signal that a scheduler may have sent to every process itself: the same request twice.
constexpr int kSameRequest_s = 2;

volatile std::sig_atomic_t stop_requested = 0;
volatile std::sig_atomic_t requested_at_s = 0;

void request_stop(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const auto now_s = static_cast<std::sig_atomic_t>(now.tv_sec);
  if (stop_requested == 0) {
    requested_at_s = now_s;
    stop_requested = 1;
  } else if (now_s - requested_at_s > kSameRequest_s) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

PreemptionSignals::PreemptionSignals() {
  stop_requested = 0;
  for (int signal : kSignals)
    if (std::signal(signal, request_stop) == SIG_IGN) std::signal(signal, SIG_IGN);
}

PreemptionSignals::~PreemptionSignals() {
  for (int signal : kSignals)
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
}

bool PreemptionSignals::requested() const {
  return stop_requested != 0;
}

}  // namespace sdp
