#pragma once

// Which processes share a node, and the traffic between nodes. Processes are numbered in order of their
// workers, whatever the nodes are. Only the node of each process is chosen here, so training results do not
// depend on it.

#include <cstdint>
#include <vector>

#include "subnet/exchange_plan.h"
#include "subnet/subnetwork_spec.h"

namespace sdp {

struct NodeMap {
  NodePlacement placement = NodePlacement::kInOrder;
  int processes_per_node = 1;  ///< the last node may have fewer
  std::vector<int> node_of;    ///< by process; process 0 is in node 0

  int nodes() const;
  /// Processes of a node, ascending.
  std::vector<int> processes_in(int node) const;
  /// The process that the launcher's rank becomes, if ranks are numbered node by node: the processes of a
  /// node take the node's ranks in ascending order. Process 0 is rank 0.
  int process_of_rank(int rank) const;
};

/// Bytes per step that process i sends to process j, row-major [W, W]: gradients and new values.
std::vector<int64_t> traffic_of(const ExchangePlan& exchanges);

/// Places the exchange plan's processes on nodes of `processes_per_node` processes; the last node may have
/// fewer.
///
/// in_order places process i on node i / processes_per_node. pack minimizes the bytes that pass between
/// nodes by a local search (Kernighan and Lin 1970, for several parts): starting from in_order and from a
/// greedy filling of one node after another, pairs of processes are exchanged while this improves the result,
/// and again after a few random exchanges. The result is never worse than in_order, and the same on every
/// machine for the same exchange plan.
///
/// Throws UsageError unless 1 <= processes_per_node <= W.
NodeMap place_on_nodes(const ExchangePlan& exchanges, NodePlacement placement, int64_t processes_per_node);

/// Bytes sent per step: by all processes, and by the process that sends the most of that kind.
struct NodeTraffic {
  int64_t inside = 0;   ///< to processes of the same node
  int64_t between = 0;  ///< to processes of other nodes
  int64_t largest_inside = 0;
  int64_t largest_between = 0;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("inside_bytes_per_step", &NodeTraffic::inside);
    field("between_bytes_per_step", &NodeTraffic::between);
    field("largest_inside_bytes_per_step", &NodeTraffic::largest_inside);
    field("largest_between_bytes_per_step", &NodeTraffic::largest_between);
  }
};
NodeTraffic node_traffic(const ExchangePlan& exchanges, const NodeMap& nodes);

/// Bytes per step that each process sends to other nodes. The same as from traffic_of, but without its table
/// of all pairs.
std::vector<int64_t> sent_between_nodes(const ExchangePlan& exchanges, const NodeMap& nodes);

/// Traffic of a ring all-reduce of `bytes` over all processes, ordered node by node: each process sends
/// 2 (W - 1) / W of the bytes to the next, and only the last process of a node sends to another node
/// (Patarasuk and Yuan 2009). NCCL uses several rings, in each of which a different process is the last of
/// its node; these processes share the bytes that leave the node.
NodeTraffic ring_traffic(int64_t bytes, const NodeMap& nodes);

/// Number of units whose owners' processes are all on one node, so that losing the node loses the unit.
int units_in_one_node(const SubnetPlan& plan, const SlotMap& slot_map, const NodeMap& nodes);

}  // namespace sdp
