#pragma once

#include "comm/ranks.h"
#include "subnet/nodes.h"

namespace sdp {

/// The ranks under which this process joins the others: `started` as the launcher numbered it, with the rank
/// that subnet/nodes.h gives to its place. Rank i then runs the slots of process i, so that everything that
/// goes in order of processes goes in order of workers, wherever they are. Rank 0 stays what it is, as the
/// others look for it at its address. Throws UsageError where a placement other than in_order is asked for
/// and the launcher did not number the ranks node by node, as many in each.
Ranks placed_ranks(const Ranks& started, const NodeMap& nodes);

}  // namespace sdp
