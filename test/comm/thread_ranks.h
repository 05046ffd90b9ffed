#pragma once

// A world of threads in one process, for tests of code that communicates.

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include "comm/communicator.h"
#include "test_device.h"

namespace sdp {

/// When an all-to-all is carried out: while the process continues, or only when it waits (LateBackend).
enum class Exchanges { kAtOnce, kLate };

/// Runs `body` once for each of `world` ranks. Each rank runs in its own thread and computes on one core; the
/// ranks are connected by Gloo over loopback and share one device. Rethrows one rank's exception, if
/// possible one that is not a PeerLostError.
void run_thread_ranks(int world, const std::function<void(Communicator&)>& body,
                      Exchanges exchanges = Exchanges::kAtOnce, at::Device device = at::kCPU,
                      std::chrono::milliseconds timeout = std::chrono::seconds(60));

/// The same on the test's device.
inline void run_ranks(int64_t world, const std::function<void(Communicator&)>& body) {
  run_thread_ranks(static_cast<int>(world), body, Exchanges::kAtOnce, test_device());
}

/// Catch's assertions may not be used in threads: a rank that finds a difference throws.
inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace sdp
