#include "device/placed_ranks.h"

#include <fmt/format.h>

#include "spec/error.h"

namespace sdp {

Ranks placed_ranks(const Ranks& started, const NodeMap& nodes) {
  if (nodes.placement == NodePlacement::kInOrder) return started;
  if (started.world % started.local_world != 0 || started.rank % started.local_world != started.local_rank)
    throw UsageError(fmt::format(
        "subnetwork.placement: found {}, but rank {} of {} is number {} of {} on its node ({}). Expected "
        "ranks numbered node by node, with equally many per node: start them so (srun --distribution=block, "
        "mpirun "
        "--map-by slot), or set in_order.",
        name_of(nodes.placement), started.rank, started.world, started.local_rank, started.local_world,
        started.source));
  Ranks placed = started;
  placed.rank = nodes.process_of_rank(started.rank);
  placed.equal_hosts = true;
  return placed;
}

}  // namespace sdp
