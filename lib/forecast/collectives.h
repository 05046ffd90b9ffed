#pragma once

// The time of NCCL's collectives, which other implementations of data parallelism, ZeRO and FSDP use. The
// time of the engine's own exchange is computed in forecast.cpp.
//
// Among N processes with S bytes each, a process sends 2 (N - 1) / N S bytes in an all-reduce, and
// (N - 1) / N S bytes in a reduce-scatter or an all-gather, whether NCCL uses a ring or a tree (nccl-tests,
// doc/PERFORMANCE.md, "Bus bandwidth"). A ring leaves each node once, so a node sends as many bytes to the
// next node as each of its processes sends along the ring. NCCL builds several rings, each of which leaves
// the node through a different adapter, so the node's L adapters share these bytes. With bandwidth B_inside
// to processes of the same node and B_between through one adapter,
//
//   t = bytes that a process sends x max(1 / B_inside, 1 / (L B_between))
//
// A tree sends as many bytes between nodes in fewer steps. A reduce-scatter or an all-gather takes N - 1
// steps, each of which adds the link's latency; an all-reduce is both.

#include <cstdint>

#include "forecast/device_profile.h"
#include "subnet/nodes.h"

namespace sdp {

/// Seconds that it takes until every process has sent `bytes_sent_by_each` along NCCL's rings, in `passes`
/// reduce-scatters and all-gathers. 0 for one process.
double ring_s(int64_t bytes_sent_by_each, int64_t passes, const NodeMap& nodes, const DeviceProfile& device);

}  // namespace sdp
