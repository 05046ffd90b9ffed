#include "subnet/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "spec/error.h"
#include "subnet/exchange.h"
#include "subnet/random_bits.h"

namespace sdp {
namespace {

/// An assignment of processes to nodes that is changed in place to increase the total weight of the pairs
/// inside nodes. It computes with integers, so the result does not depend on a machine's rounding.
class NodeSearch {
 public:
  /// `weights`: symmetric [W, W], 0 on the diagonal.
  NodeSearch(const std::vector<int64_t>& weights, int processes_per_node, std::vector<int> node_of)
      : weights_(&weights),
        processes_(static_cast<int>(node_of.size())),
        nodes_((processes_ + processes_per_node - 1) / processes_per_node),
        first_(processes_ % processes_per_node == 0 ? 0 : 1),
        node_of_(std::move(node_of)),
        to_node_(static_cast<size_t>(processes_) * nodes_, 0) {
    for (int process = 0; process < processes_; ++process)
      for (int other = 0; other < processes_; ++other)
        to_node(process, node_of_[other]) += weight(process, other);
    for (int process = 0; process < processes_; ++process)
      inside_ += to_node(process, node_of_[process]);
  }

  /// Total weight of all pairs inside nodes, each counted twice.
  int64_t inside() const { return inside_; }
  const std::vector<int>& node_of() const { return node_of_; }

  /// Exchanges pairs of processes while this increases inside().
  void descend() {
    for (bool changed = true; changed;) {
      changed = false;
      for (int a = first_; a < processes_; ++a) {
        for (int b = a + 1; b < processes_; ++b) {
          if (gain(a, b) <= 0) continue;
          exchange(a, b);
          changed = true;
        }
      }
    }
  }

  void perturb(int times, RandomBits& random) {
    for (int i = 0; i < times; ++i)
      exchange(first_ + random.below(processes_ - first_), first_ + random.below(processes_ - first_));
  }

 private:
  int64_t weight(int a, int b) const { return (*weights_)[static_cast<size_t>(a) * processes_ + b]; }
  int64_t& to_node(int process, int node) { return to_node_[static_cast<size_t>(process) * nodes_ + node]; }

  /// Increase of inside() / 2 if a and b are exchanged.
  int64_t gain(int a, int b) {
    const int at_a = node_of_[a];
    const int at_b = node_of_[b];
    if (at_a == at_b) return 0;
    return to_node(a, at_b) - to_node(a, at_a) + to_node(b, at_a) - to_node(b, at_b) - 2 * weight(a, b);
  }

  void exchange(int a, int b) {
    inside_ += 2 * gain(a, b);
    const int at_a = node_of_[a];
    const int at_b = node_of_[b];
    for (int process = 0; process < processes_; ++process) {
      const int64_t moved = weight(process, a) - weight(process, b);
      to_node(process, at_a) -= moved;
      to_node(process, at_b) += moved;
    }
    std::swap(node_of_[a], node_of_[b]);
  }

  const std::vector<int64_t>* weights_;
  int processes_;
  int nodes_;
  int first_;  ///< first process that may move: process 0 stays on node 0 if the nodes have different sizes
  std::vector<int> node_of_;
  std::vector<int64_t> to_node_;  ///< [W, nodes]: total weight between a process and the processes of a node
  int64_t inside_ = 0;
};

std::vector<int> in_order(int processes, int processes_per_node) {
  std::vector<int> node_of(processes);
  for (int process = 0; process < processes; ++process)
    node_of[process] = process / processes_per_node;
  return node_of;
}

/// Fills one node after another: first with the lowest remaining process, then repeatedly with the process
/// that has the greatest weight with those already on the node.
std::vector<int> filled_greedily(const std::vector<int64_t>& weights, int processes, int processes_per_node) {
  std::vector<int> node_of(processes, -1);
  std::vector<int64_t> with_node(processes, 0);
  for (int placed = 0; placed < processes; ++placed) {
    if (placed % processes_per_node == 0) std::fill(with_node.begin(), with_node.end(), 0);
    int best = -1;
    for (int process = 0; process < processes; ++process)
      if (node_of[process] < 0 && (best < 0 || with_node[process] > with_node[best])) best = process;
    node_of[best] = placed / processes_per_node;
    for (int process = 0; process < processes; ++process)
      with_node[process] += weights[static_cast<size_t>(best) * processes + process];
  }
  return node_of;
}

/// The node of each process, with the heaviest pairs inside nodes that the search finds.
std::vector<int> search_nodes(const std::vector<int64_t>& weights, int processes, int processes_per_node) {
  constexpr int64_t kMostRestarts = 32;
  constexpr int64_t kPairs = 4'000'000;  // pairs that all restarts may examine in one round of exchanges
  const int64_t pairs = int64_t{processes} * processes;
  RandomBits random(0);
  NodeSearch best(weights, processes_per_node, in_order(processes, processes_per_node));
  const auto offer = [&](NodeSearch search) {
    search.descend();
    if (search.inside() > best.inside()) best = std::move(search);
  };
  offer(best);
  offer(NodeSearch(weights, processes_per_node, filled_greedily(weights, processes, processes_per_node)));
  for (int64_t i = 0; i < std::min(kMostRestarts, kPairs / pairs); ++i) {
    NodeSearch perturbed = best;
    perturbed.perturb(2 + random.below(4), random);
    offer(std::move(perturbed));
  }
  return best.node_of();
}

/// Renumbers the nodes so that process 0 is on node 0. The two nodes have equally many processes.
void renumber(std::vector<int>& node_of) {
  const int first = node_of.front();
  for (int& node : node_of)
    if (node == first || node == 0) node = first - node;
}

/// Bytes per step, by sending process.
struct Sent {
  std::vector<int64_t> all;
  std::vector<int64_t> between;  ///< the part sent to other nodes
};

/// Adds the bytes that are sent for a segment in an exchange.
void add_segment(Sent& sent, const Exchange& exchange, const Segment& segment, const NodeMap& nodes) {
  const Peers peers = exchange.peers(segment);
  if (peers.size() == 0) return;
  const int64_t element_bytes = bytes_of(exchange.type()) * exchange.times_per_step();
  // Numbers of the segment's elements and peers on each node.
  std::vector<int64_t> elements(nodes.nodes(), 0), peers_in(nodes.nodes(), 0);
  std::vector<int64_t> shards;
  for (size_t i = 0; i < segment.holders.size(); ++i) {
    shards.push_back(segment.shard_of_holder(static_cast<int>(i)));
    elements[nodes.node_of[segment.holders[i]]] += shards.back();
  }
  peers.for_each([&](int peer) { ++peers_in[nodes.node_of[peer]]; });
  for (size_t i = 0; i < segment.holders.size(); ++i) {
    const int holder = segment.holders[i];
    const int node = nodes.node_of[holder];
    sent.all[holder] += exchange.volume(segment, holder, shards[i]).sent * element_bytes;
    sent.between[holder] +=
        element_bytes * (exchange.is_reduction() ? segment.elements - elements[node]
                                                 : shards[i] * (peers.size() - peers_in[node]));
  }
}

Sent sent_by_process(const ExchangePlan& exchanges, const NodeMap& nodes) {
  Sent sent{.all = std::vector<int64_t>(nodes.node_of.size(), 0),
            .between = std::vector<int64_t>(nodes.node_of.size(), 0)};
  for_each_exchange(exchanges, [&](const Exchange& exchange) {
    for (const Segment& segment : exchange.bucket().segments)
      add_segment(sent, exchange, segment, nodes);
  });
  return sent;
}

}  // namespace

int NodeMap::nodes() const {
  return (static_cast<int>(node_of.size()) + processes_per_node - 1) / processes_per_node;
}

std::vector<int> NodeMap::processes_in(int node) const {
  std::vector<int> result;
  for (int process = 0; process < static_cast<int>(node_of.size()); ++process)
    if (node_of[process] == node) result.push_back(process);
  return result;
}

int NodeMap::process_of_rank(int rank) const {
  return processes_in(rank / processes_per_node).at(rank % processes_per_node);
}

std::vector<int64_t> traffic_of(const ExchangePlan& exchanges) {
  const auto processes = static_cast<size_t>(exchanges.slot_map.processes);
  std::vector<int64_t> traffic(processes * processes, 0);
  for_each_exchange(exchanges, [&](const Exchange& exchange) {
    for (const Segment& segment : exchange.bucket().segments) {
      for (size_t i = 0; i < segment.holders.size(); ++i) {
        const int holder = segment.holders[i];
        const int64_t bytes = segment.shard_of_holder(static_cast<int>(i)) * bytes_of(exchange.type()) *
                              exchange.times_per_step();
        exchange.peers(segment).for_each([&](int peer) {
          if (peer == holder) return;
          traffic[exchange.is_reduction() ? peer * processes + holder : holder * processes + peer] += bytes;
        });
      }
    }
  });
  return traffic;
}

NodeMap place_on_nodes(const ExchangePlan& exchanges, NodePlacement placement, int64_t processes_per_node) {
  const int processes = exchanges.slot_map.processes;
  if (processes_per_node < 1 || processes_per_node > processes)
    throw UsageError(fmt::format("{} processes per node: expected 1 to {}, the number of processes",
                                 processes_per_node, processes));
  const int per_node = static_cast<int>(processes_per_node);
  NodeMap nodes{
      .placement = placement, .processes_per_node = per_node, .node_of = in_order(processes, per_node)};
  if (placement == NodePlacement::kInOrder || per_node == 1 || per_node == processes) return nodes;
  const std::vector<int64_t> traffic = traffic_of(exchanges);
  std::vector<int64_t> weights(traffic.size());
  for (size_t i = 0; i < static_cast<size_t>(processes); ++i)
    for (size_t j = 0; j < static_cast<size_t>(processes); ++j)
      weights[i * processes + j] = traffic[i * processes + j] + traffic[j * processes + i];
  nodes.node_of = search_nodes(weights, processes, per_node);
  renumber(nodes.node_of);
  return nodes;
}

std::vector<int64_t> sent_between_nodes(const ExchangePlan& exchanges, const NodeMap& nodes) {
  return sent_by_process(exchanges, nodes).between;
}

NodeTraffic node_traffic(const ExchangePlan& exchanges, const NodeMap& nodes) {
  const Sent sent = sent_by_process(exchanges, nodes);
  NodeTraffic result;
  for (size_t process = 0; process < sent.all.size(); ++process) {
    const int64_t between = sent.between[process];
    const int64_t inside = sent.all[process] - between;
    result.inside += inside;
    result.between += between;
    result.largest_inside = std::max(result.largest_inside, inside);
    result.largest_between = std::max(result.largest_between, between);
  }
  return result;
}

NodeTraffic ring_traffic(int64_t bytes, const NodeMap& nodes) {
  const auto processes = static_cast<int64_t>(nodes.node_of.size());
  const int64_t sent = std::llround(2.0 * static_cast<double>(bytes) * static_cast<double>(processes - 1) /
                                    static_cast<double>(processes));
  const int64_t between = nodes.nodes() > 1 ? nodes.nodes() : 0;
  const auto fewest = static_cast<int64_t>(nodes.processes_in(nodes.nodes() - 1).size());
  return {.inside = (processes - between) * sent,
          .between = between * sent,
          .largest_inside = processes > between ? sent : 0,
          .largest_between = between > 0 ? sent / fewest : 0};
}

int units_in_one_node(const SubnetPlan& plan, const SlotMap& slot_map, const NodeMap& nodes) {
  int count = 0;
  for (const Unit& unit : plan.units) {
    const MemberSet holders = slot_map.processes_of(unit.owners);
    const int node = nodes.node_of[holders.front()];
    if (std::all_of(holders.begin(), holders.end(), [&](int p) { return nodes.node_of[p] == node; })) ++count;
  }
  return count;
}

}  // namespace sdp
