#pragma once

// A second communicator of processes that have met already.

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace sdp {

/// Joins the same ranks once more, on `device`, over the rendezvous of `met`, which must outlive the result.
/// What fails in one of the two leaves the other as it is, so that the processes can still tell each other.
/// Collective, at most once for each `met`. `ranks`: those that `met` was connected with. A rank whose others
/// fail or leave gets a PeerLostError, as ever, but is not ended by the watch.
std::unique_ptr<Communicator> connect_beside(const Communicator& met, const Ranks& ranks, at::Device device,
                                             std::chrono::milliseconds timeout);

}  // namespace sdp
