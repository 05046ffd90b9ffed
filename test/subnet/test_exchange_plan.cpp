// Sets of processes, and the order in which exchanges begin and end, for buckets that are written by hand.

#include <algorithm>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>

#include "catch.h"
#include "cost/accounting.h"
#include "small_plans.h"
#include "spec/error.h"
#include "subnet/assignment_starts.h"
#include "subnet/exchange.h"
#include "subnet/exchange_plan.h"
#include "subnet/nodes.h"
#include "subnet/random_bits.h"

namespace sdp {
namespace {

TEST_CASE("a member set behaves like a list of its numbers") {
  RandomBits random(1);
  for (const int numbers : {1, 63, 64, 65, 200, 1000}) {
    for (const int count : {0, 1, numbers / 2, numbers}) {
      const std::vector<int> members = random_owners(numbers, count, random);
      const MemberSet set = members;
      CHECK(set.size() == members.size());
      CHECK(std::equal(set.begin(), set.end(), members.begin(), members.end()));
      for (int number = 0; number < numbers + 130; ++number) {
        const auto found = std::find(members.begin(), members.end(), number);
        REQUIRE(set.contains(number) == (found != members.end()));
        REQUIRE(set.place_of(number) == (found == members.end() ? -1 : found - members.begin()));
      }
    }
  }
  CHECK_FALSE(MemberSet(std::vector{0, 1}).contains(-1));
  CHECK_THROWS_AS(MemberSet(std::vector{1, 1}), std::logic_error);
}

TEST_CASE("slot map: W = R n, or W divides n") {
  CHECK(make_slot_map(8, 1, 8).slots_per_process() == 1);
  CHECK(make_slot_map(8, 1, 2).slots_of(1).front() == Slot{4, 0});
  CHECK(make_slot_map(4, 2, 8).slots_of(5) == std::vector<Slot>{{2, 1}});
  CHECK(make_slot_map(4, 2, 2).slots_of(0) == std::vector<Slot>{{0, 0}, {0, 1}, {1, 0}, {1, 1}});
  CHECK(make_slot_map(4, 2, 8).processes_of(std::vector{1, 3}) == std::vector<int>{2, 3, 6, 7});
  for (const auto& [n, r, w] :
       {std::tuple{8, 1, 3}, {8, 1, 16}, {4, 2, 16}, {4, 2, 6}, {4, 1, 0}, {4, 1, -1}}) {
    INFO(n << " workers, " << r << " replicas, " << w << " processes");
    CHECK_THROWS_AS(make_slot_map(n, r, w), UsageError);
  }
  CHECK_THROWS_WITH(make_slot_map(8, 2, 3), Catch::Matchers::Contains("(1, 2, 4, 8, 16)"));
}

TEST_CASE("a parameter outside of branches is read after the branch that precedes it") {
  ModelLayout layout;
  for (const std::optional<int> branch :
       {std::optional<int>(), {0}, {0}, std::optional<int>(), {1}, std::optional<int>()})
    layout.parameters.emplace_back().branch = branch;
  CHECK(depths_of(layout) == std::vector<int>{-1, 0, 0, 0, 1, 1});
}

/// Four buckets. Parameter 1 is in buckets 0 and 1, and bucket 3 is read at branch 0, as bucket 2 is.
const BucketIndex kFour = {.parameters_of = {{.first_of = {0, 1}, .needed_before = -1},
                                             {.first_of = {2}, .needed_before = -1},
                                             {.first_of = {3}, .needed_before = 0},
                                             {.first_of = {4}, .needed_before = 0}},
                           .buckets_of = {{0}, {0, 1}, {1}, {2}, {3}}};

/// "+r3 -r3": the reduction of bucket 3 begins, and ends; g: gradients are gathered, v: values.
std::string text_of(const ExchangeEvents& events) {
  std::string text;
  for (const ExchangeEvent& event : events)
    text += (text.empty() ? "" : " ") + std::string(event.what == ExchangeEvent::What::kBegin ? "+" : "-") +
            "rgv"[static_cast<size_t>(event.kind)] + std::to_string(event.bucket);
  return text;
}

TEST_CASE("a bucket is reduced once its and all deeper buckets' gradients have arrived, two at a time") {
  ExchangeOrder order(kFour);
  for (int step = 0; step < 2; ++step) {
    order.begin_backward({0, 1, 2, 3, 4}, /*last=*/true);
    CHECK(text_of(order.gradient_ready(3)) == "");  // bucket 3 is deeper
    CHECK_FALSE(order.is_ready(4));
    CHECK(text_of(order.gradient_ready(4)) == "+r3 +r2");
    CHECK(order.is_ready(4));
    CHECK(text_of(order.gradient_ready(1)) == "");
    CHECK(text_of(order.gradient_ready(1)) == "");  // a second part
    CHECK(text_of(order.gradient_ready(2)) == "-r3 +r1");
    CHECK(text_of(order.gradient_ready(0)) == "-r2 +r0");
    CHECK(text_of(order.finish_reducing()) == "-r1 -r0");
  }
}

TEST_CASE("only the last pass of a step has its gradients reduced") {
  ExchangeOrder order(kFour);
  order.begin_backward({4}, /*last=*/false);
  CHECK(text_of(order.gradient_ready(4)) == "");
  order.begin_backward({4}, /*last=*/true);
  CHECK_FALSE(order.is_ready(4));
  // The pass has no gradients for the other buckets.
  CHECK(text_of(order.gradient_ready(4)) == "+r3 +r2 -r3 +r1 -r2 +r0");
  CHECK_THROWS_AS(order.gradient_ready(4), std::logic_error);
  CHECK(text_of(order.finish_reducing()) == "-r1 -r0");
}

TEST_CASE("gradients that have not arrived are reduced at the end") {
  ExchangeOrder order(kFour);
  CHECK_THROWS_AS(order.finish_reducing(), std::logic_error);  // no pass yet
  order.begin_backward({0, 1, 2, 3, 4}, /*last=*/true);
  CHECK(text_of(order.gradient_ready(4)) == "+r3");
  CHECK(text_of(order.finish_reducing()) == "+r2 -r3 +r1 -r2 +r0 -r1 -r0");
  CHECK_THROWS_AS(order.finish_reducing(), std::logic_error);  // none since then
}

TEST_CASE("averaged gradients are gathered from the first bucket on, two at a time") {
  CHECK(text_of(ExchangeOrder(kFour).gather_gradients()) == "+g0 +g1 -g0 +g2 -g1 +g3 -g2 -g3");
}

TEST_CASE("the forward pass waits for the values that it is about to read, and others follow") {
  ExchangeOrder order(kFour);
  CHECK(text_of(order.reach(2)) == "");
  for (int step = 0; step < 2; ++step) {
    CHECK(text_of(order.begin_gathering()) == "+v0 +v1");
    CHECK(text_of(order.reach(-1)) == "-v0 +v2 -v1 +v3");
    CHECK(text_of(order.reach(-1)) == "");
    CHECK(text_of(order.reach(0)) == "-v2 -v3");
    CHECK(text_of(order.reach(1)) == "");
  }
  CHECK(text_of(order.begin_gathering()) == "+v0 +v1");
  CHECK(text_of(order.reach(7)) == "-v0 +v2 -v1 +v3 -v2 -v3");
}

using test::plan_of;

ExchangePlan exchange_plan_of(const SubnetPlan& plan, int64_t processes, bool shard = true,
                              int64_t replicas = 1) {
  ExchangeOptions options;
  options.precision = Precision::kBf16;
  options.bucket_bytes = 5000;
  options.shard = shard;
  return make_exchange_plan(plan, make_slot_map(plan.workers, replicas, processes), options);
}

/// The traffic of each pair, from the messages that the engine packs.
std::vector<int64_t> traffic_by_pairs(const ExchangePlan& exchanges) {
  const int processes = exchanges.slot_map.processes;
  std::vector<int64_t> traffic(static_cast<size_t>(processes) * processes, 0);
  for (int bucket = 0; bucket < static_cast<int>(exchanges.buckets.size()); ++bucket)
    for (ExchangeKind kind : kExchangeKinds)
      for (int from = 0; from < processes; ++from)
        for (int to = 0; to < processes; ++to)
          traffic[from * processes + to] +=
              test::message_elements(Exchange(exchanges, bucket, kind), from, to) *
              bytes_of(exchanges.buckets[bucket].type);
  return traffic;
}

/// What a process sends to those inside its node and to others.
std::pair<int64_t, int64_t> sent_inside_and_between(const std::vector<int64_t>& traffic,
                                                    const std::vector<int>& node_of, size_t from) {
  int64_t inside = 0;
  int64_t between = 0;
  for (size_t to = 0; to < node_of.size(); ++to)
    (node_of[from] == node_of[to] ? inside : between) += traffic[from * node_of.size() + to];
  return {inside, between};
}

int64_t bytes_between(const std::vector<int64_t>& traffic, const std::vector<int>& node_of) {
  int64_t bytes = 0;
  for (size_t from = 0; from < node_of.size(); ++from)
    bytes += sent_inside_and_between(traffic, node_of, from).second;
  return bytes;
}

TEST_CASE("bytes inside and between nodes match the exchange plan, pair by pair") {
  int64_t seen_between = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const SubnetPlan plan = plan_of(6, 1 + static_cast<int64_t>(seed % 6), seed,
                                    seed % 3 == 0 ? Construction::kNeuron : Construction::kBlock,
                                    seed % 2 == 0 ? Masking::kBackward : Masking::kForward);
    for (const auto& [processes, replicas] : {std::pair{6, 1}, {3, 1}, {12, 2}}) {
      const ExchangePlan exchanges = exchange_plan_of(plan, processes, seed % 4 < 2, replicas);
      const std::vector<int64_t> traffic = traffic_by_pairs(exchanges);
      REQUIRE(traffic_of(exchanges) == traffic);
      for (const NodePlacement placement : {NodePlacement::kInOrder, NodePlacement::kPack}) {
        const NodeMap nodes = place_on_nodes(exchanges, placement, 2);
        const std::vector<int64_t> sent_between = sent_between_nodes(exchanges, nodes);
        NodeTraffic expected;
        for (int from = 0; from < processes; ++from) {
          const auto [inside, between] = sent_inside_and_between(traffic, nodes.node_of, from);
          CHECK(sent_between[from] == between);
          CHECK(inside + between == cost_of(plan, exchanges, {}, from).bytes_sent_per_step());
          expected.inside += inside;
          expected.between += between;
          expected.largest_inside = std::max(expected.largest_inside, inside);
          expected.largest_between = std::max(expected.largest_between, between);
        }
        const NodeTraffic found = node_traffic(exchanges, nodes);
        CHECK(found.inside == expected.inside);
        CHECK(found.between == expected.between);
        CHECK(found.largest_inside == expected.largest_inside);
        CHECK(found.largest_between == expected.largest_between);
        seen_between += found.between;
      }
    }
  }
  CHECK(seen_between > 0);
}

/// The fewest bytes between nodes over all ways to place the processes on nodes, each on one in `node_of`,
/// which is ascending.
int64_t fewest_between(const std::vector<int64_t>& traffic, std::vector<int> node_of) {
  int64_t fewest = INT64_MAX;
  do {
    fewest = std::min(fewest, bytes_between(traffic, node_of));
  } while (std::next_permutation(node_of.begin(), node_of.end()));
  return fewest;
}

TEST_CASE("pack is the best of all placements, found by exhaustive search") {
  int better_packed = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const SubnetPlan plan = plan_of(6, 2 + static_cast<int64_t>(seed % 3), seed);
    const ExchangePlan exchanges = exchange_plan_of(plan, 6);
    const std::vector<int64_t> traffic = traffic_by_pairs(exchanges);
    for (int per_node : {2, 3, 4}) {  // 4: the last node has 2
      const NodeMap in_order = place_on_nodes(exchanges, NodePlacement::kInOrder, per_node);
      const NodeMap packed = place_on_nodes(exchanges, NodePlacement::kPack, per_node);
      CHECK(packed.node_of.front() == 0);
      const int64_t between = bytes_between(traffic, packed.node_of);
      CHECK(between <= bytes_between(traffic, in_order.node_of));
      // With nodes of two sizes, process 0 cannot be in the smaller one.
      if (6 % per_node == 0) CHECK(between == fewest_between(traffic, in_order.node_of));
      better_packed += between < bytes_between(traffic, in_order.node_of) ? 1 : 0;
    }
  }
  CHECK(better_packed > 12);
}

/// Units whose owners all belong to one cluster. Cluster c: the workers equal to c modulo `clusters`.
SubnetPlan clustered(int workers, int owners, int clusters, int64_t depth) {
  SubnetPlan plan = plan_of(workers, owners, 0, Construction::kBlock, Masking::kForward, depth);
  RandomBits random(1);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    std::vector<int> members = random_owners(workers / clusters, owners, random);
    for (int& member : members)
      member = member * clusters + static_cast<int>(unit) % clusters;
    plan.units[unit].owners = members;
  }
  return plan;
}

TEST_CASE("64 workers in eight clusters: pack finds them") {
  const SubnetPlan plan = clustered(64, 6, 8, 200);
  const ExchangePlan exchanges = exchange_plan_of(plan, 64);
  const NodeMap packed = place_on_nodes(exchanges, NodePlacement::kPack, 8);
  for (int worker = 0; worker < 64; ++worker)
    CHECK(packed.node_of[worker] == packed.node_of[worker % 8]);
  CHECK(units_in_one_node(plan, exchanges.slot_map, packed) == 200);
  CHECK(place_on_nodes(exchanges, NodePlacement::kPack, 8).node_of == packed.node_of);
}

TEST_CASE("the ranks of a node become its processes, and rank 0 becomes process 0") {
  const ExchangePlan exchanges = exchange_plan_of(clustered(12, 3, 3, 30), 12);
  const NodeMap nodes = place_on_nodes(exchanges, NodePlacement::kPack, 4);
  CHECK(nodes.nodes() == 3);
  CHECK(nodes.processes_in(0) == std::vector<int>{0, 3, 6, 9});
  std::vector<int> processes;
  for (int rank = 0; rank < 12; ++rank) {
    processes.push_back(nodes.process_of_rank(rank));
    CHECK(nodes.node_of[processes.back()] == rank / 4);
    if (rank % 4 > 0) CHECK(processes[rank] > processes[rank - 1]);
  }
  CHECK(processes.front() == 0);
  CHECK(std::ranges::is_permutation(processes, std::views::iota(0, 12)));
}

TEST_CASE("one node per process, or one node: placement has no effect; impossible nodes are refused") {
  const ExchangePlan exchanges = exchange_plan_of(clustered(8, 3, 2, 20), 8);
  for (int64_t per_node : {1, 8})
    for (int process = 0; process < 8; ++process)
      CHECK(place_on_nodes(exchanges, NodePlacement::kPack, per_node).process_of_rank(process) == process);
  CHECK_THROWS_WITH(place_on_nodes(exchanges, NodePlacement::kInOrder, 0),
                    Catch::Matchers::Contains("expected 1 to 8"));
  CHECK_THROWS_AS(place_on_nodes(exchanges, NodePlacement::kPack, 9), UsageError);
  CHECK(place_on_nodes(exchanges, NodePlacement::kInOrder, 3).nodes() == 3);
  CHECK(place_on_nodes(exchanges, NodePlacement::kInOrder, 3).processes_in(2) == std::vector<int>{6, 7});
}

TEST_CASE("a ring all-reduce, chunk by chunk") {
  const ExchangePlan exchanges = exchange_plan_of(plan_of(12, 1, 0), 12);
  for (int per_node : {1, 3, 4, 12}) {
    const NodeMap nodes = place_on_nodes(exchanges, NodePlacement::kInOrder, per_node);
    constexpr int64_t kChunk = 1000;  // of 12
    NodeTraffic expected;
    for (int step = 0; step < 2 * 11; ++step)
      for (int process = 0; process < 12; ++process)
        (nodes.node_of[process] == nodes.node_of[(process + 1) % 12] ? expected.inside : expected.between) +=
            kChunk;
    const NodeTraffic found = ring_traffic(12 * kChunk, nodes);
    CHECK(found.inside == expected.inside);
    CHECK(found.between == expected.between);
    CHECK(found.largest_between == (per_node == 12 ? 0 : 22 * kChunk / per_node));
    CHECK(found.largest_inside == (per_node == 1 ? 0 : 22 * kChunk));
  }
}

}  // namespace
}  // namespace sdp
