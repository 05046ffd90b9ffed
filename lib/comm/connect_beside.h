#pragma once

// A second communicator for processes that are already connected.

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace sdp {

/// Connects the same ranks a second time, on `device`, through the rendezvous of `met`, which must outlive
/// the result. A failure in one of the two communicators does not affect the other, so the processes can
/// still report failures to each other. Collective; call it at most once for each `met`, with the `ranks`
/// that `met` was connected with. If other ranks fail or leave, this rank gets a PeerLostError as usual, but
/// the watch does not end it.
std::unique_ptr<Communicator> connect_beside(const Communicator& met, const Ranks& ranks, at::Device device,
                                             std::chrono::milliseconds timeout);

}  // namespace sdp
