#include "train/preemption.h"

#include <csignal>

namespace sdp {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int) {
  stop_requested = 1;
}

}  // namespace

PreemptionSignals::PreemptionSignals() {
  stop_requested = 0;
  std::signal(SIGTERM, request_stop);
  std::signal(SIGUSR1, request_stop);
}

PreemptionSignals::~PreemptionSignals() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGUSR1, SIG_DFL);
}

bool PreemptionSignals::requested() const {
  return stop_requested != 0;
}

}  // namespace sdp
