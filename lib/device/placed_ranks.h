#pragma once

#include "comm/ranks.h"
#include "subnet/nodes.h"

namespace sdp {

/// The ranks under which the processes connect: `started`, as numbered by the launcher, with the rank that
/// subnet/nodes.h assigns to its place. Rank i then runs the slots of process i, so that the order of
/// processes is the order of workers on any nodes. Rank 0 is unchanged, as the others connect to its address.
/// Throws UsageError if a placement other than in_order is requested and the launcher did not number the
/// ranks node by node with equally many per node.
Ranks placed_ranks(const Ranks& started, const NodeMap& nodes);

}  // namespace sdp
