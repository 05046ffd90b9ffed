#include "forecast/collectives.h"

#include <algorithm>

namespace sdp {

double ring_s(int64_t bytes_sent_by_each, int64_t passes, const NodeMap& nodes, const DeviceProfile& device) {
  const auto bytes = static_cast<double>(bytes_sent_by_each);
  // The last node has the fewest adapters and limits the ring.
  const auto adapters = static_cast<double>(nodes.processes_in(nodes.nodes() - 1).size());
  const double between_s = nodes.nodes() > 1 ? bytes / (adapters * device.between_bytes_per_s) : 0;
  // With one process per node, nothing is sent within a node.
  const double inside_s = nodes.processes_per_node > 1 ? bytes / device.inside_bytes_per_s : 0;
  const auto steps = static_cast<double>(passes) * static_cast<double>(nodes.node_of.size() - 1);
  return std::max(inside_s, between_s) + steps * device.latency_s.value_or(0);
}

}  // namespace sdp
