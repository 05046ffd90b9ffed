#pragma once

// Which processes share a node, and what passes between nodes. Processes are numbered in order of their
// workers whatever the nodes are: only where a process sits is chosen here, so that no result depends on it.

#include <cstdint>
#include <vector>

#include "subnet/schedule.h"
#include "subnet/subnetwork_spec.h"

namespace sdp {

struct NodeMap {
  NodePlacement placement = NodePlacement::kInOrder;
  int processes_per_node = 1;  ///< of the last node perhaps fewer
  std::vector<int> node_of;    ///< by process; process 0 is in node 0

  int nodes() const;
  /// Processes of a node, ascending.
  std::vector<int> processes_in(int node) const;
  /// The process that a launcher's rank r becomes, where ranks are numbered node by node: the node's
  /// processes take its ranks in ascending order. Process 0 is rank 0.
  int process_of_rank(int rank) const;
};

/// Bytes per step that process i sends to process j, row-major [W, W]: gradients, and what comes back.
std::vector<int64_t> traffic_of(const Schedule& schedule);

/// Puts the schedule's processes on nodes of `processes_per_node`, the last of which may have fewer.
///
/// in_order: process i in node i / processes_per_node. pack: so that the fewest bytes pass between nodes.
/// spread: so that the most do, as the owners of a unit are then in different nodes. pack and spread are
/// searched for: from the order as it is and from a greedy filling of one node after the other, pairs of
/// processes change places while that helps, and again after a few random exchanges (Kernighan and Lin 1970,
/// for several parts). Never worse than in_order; the same for the same schedule on every machine.
///
/// Throws UsageError unless 1 <= processes_per_node <= W.
NodeMap place_on_nodes(const Schedule& schedule, NodePlacement placement, int64_t processes_per_node);

/// Bytes sent a step, in all and by the process that sends the most of that kind.
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
NodeTraffic node_traffic(const Schedule& schedule, const NodeMap& nodes);

/// Bytes per step that each process sends to other nodes: those of traffic_of, without its table of all
/// pairs.
std::vector<int64_t> sent_between_nodes(const Schedule& schedule, const NodeMap& nodes);

/// The same of a ring all-reduce of `bytes` over all processes, node by node: each sends 2 (W - 1) / W of
/// them to the next, of a node only the last one to another node (Patarasuk and Yuan 2009). NCCL makes
/// several rings, each with another process as the last one of a node: these share what leaves the node.
NodeTraffic ring_traffic(int64_t bytes, const NodeMap& nodes);

/// Units all of whose owners' processes are in one node, which is lost with it.
int units_in_one_node(const SubnetPlan& plan, const Placement& placement, const NodeMap& nodes);

}  // namespace sdp
