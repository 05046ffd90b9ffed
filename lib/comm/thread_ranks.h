#pragma once

// A world of threads in one process, for tests of what communicates.

#include <functional>

#include "comm/communicator.h"

namespace sdp {

/// When an all-to-all is carried out: while the process continues, or not before it waits (late_backend.h).
enum class Exchanges { kAtOnce, kLate };

/// Runs `body` once for each of `world` ranks, each in a thread of its own with one computing thread, joined
/// by Gloo over loopback, on one device. Rethrows the first exception, preferring one that is not merely a
/// lost peer.
void run_thread_ranks(int world, const std::function<void(Communicator&)>& body,
                      Exchanges exchanges = Exchanges::kAtOnce, at::Device device = at::kCPU);

}  // namespace sdp
