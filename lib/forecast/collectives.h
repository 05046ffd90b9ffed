#pragma once

// The time of NCCL's collectives, which data parallelism, ZeRO and FSDP use elsewhere; the engine's own
// exchange is in forecast.cpp.
//
// Of N processes with S bytes each, a process sends 2 (N - 1) / N S in an all-reduce, and (N - 1) / N S in a
// reduce-scatter and in an all-gather, whether NCCL takes a ring or a tree (nccl-tests, doc/PERFORMANCE.md,
// "Bus bandwidth"). A ring leaves each node once: what a process sends on, all of a node's processes together
// send to the next node. NCCL makes several rings, each of which leaves the node through another adapter, so
// that the node's L adapters share these bytes. With B_inside to processes of the node and B_between through
// one adapter
//
//   t = bytes that a process sends x max(1 / B_inside, 1 / (L B_between))
//
// A tree passes as many bytes between nodes in fewer steps. The latency of steps is not in the formula.

#include <cstdint>

#include "forecast/device_profile.h"
#include "subnet/nodes.h"

namespace sdp {

/// Seconds in which every process sends so many bytes along NCCL's rings. 0 for one process.
double ring_s(int64_t bytes_sent_by_each, const NodeMap& nodes, const DeviceProfile& device);

}  // namespace sdp
