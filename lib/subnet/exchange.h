#pragma once

// The exchanges of a bucket: which process sends how many elements of which segments to which other process.
// Costs, traffic between nodes, the memory forecast and the engine's buffers take their sizes from here.
//
// Each holder of a segment averages its shard of the gradients; other processes then need the result. So
// every exchange transfers shards: a reduce-scatter sends each shard from all its `peers` to the holder, and
// an all-gather sends it from the holder to all its peers. A process does not send data to itself.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "subnet/exchange_plan.h"

namespace sdp {

enum class ExchangeKind {
  kReduceGradients,  ///< reduce-scatter: gradients of a shard, from all holders of the segment
  kGatherGradients,  ///< all-gather, without `shard`: averaged gradients, to all holders of the segment
  kGatherValues,     ///< all-gather: new values, to all readers of the segment that did not compute them
};
inline constexpr std::array kExchangeKinds = {ExchangeKind::kReduceGradients, ExchangeKind::kGatherGradients,
                                              ExchangeKind::kGatherValues};

/// The processes that a segment's shards come from or go to: those in `among` but not in `besides`.
struct Peers {
  const MemberSet* among = nullptr;
  const MemberSet* besides = nullptr;  ///< a subset of `among`; may be null

  bool contains(int process) const {
    return among != nullptr && among->contains(process) &&
           !(besides != nullptr && besides->contains(process));
  }
  int64_t size() const {
    return static_cast<int64_t>(among == nullptr ? 0 : among->size()) -
           static_cast<int64_t>(besides == nullptr ? 0 : besides->size());
  }
  template <class Visit>
  void for_each(Visit visit) const {
    if (among == nullptr) return;
    for (int process : *among)
      if (besides == nullptr || !besides->contains(process)) visit(process);
  }
};

/// Elements that a process sends to all others and receives from them.
struct Volume {
  int64_t sent = 0;
  int64_t received = 0;
};

/// One exchange of one bucket, for all processes. The exchange plan must outlive it.
class Exchange {
 public:
  Exchange(const ExchangePlan& exchanges, int bucket, ExchangeKind kind);

  const Bucket& bucket() const { return bucket_; }
  ElementType type() const { return type_; }  ///< of the elements on the wire
  bool is_reduction() const { return kind_ == ExchangeKind::kReduceGradients; }
  /// How often the exchange takes place per step.
  int64_t times_per_step() const { return times_per_step_; }
  Peers peers(const Segment& segment) const;
  /// Whether any process sends or receives.
  bool has_peers() const;

  /// Visits the ranges of segments in the message that `from` sends to `to`, in order: visit(the segment's
  /// index in the bucket, first element in the segment, elements).
  template <class Visit>
  void for_each_range(int from, int to, Visit visit) const {
    if (from == to) return;
    const int holder = is_reduction() ? to : from;
    const int peer = is_reduction() ? from : to;
    for (size_t s = 0; s < bucket_.segments.size(); ++s) {
      const Segment& segment = bucket_.segments[s];
      const int64_t elements = segment.shard_elements(holder);
      if (elements > 0 && peers(segment).contains(peer)) visit(s, segment.shard_begin(holder), elements);
    }
  }
  /// Elements of the segment that the process sends and receives in all its messages. `shard`: the size of
  /// the process's shard of the segment.
  Volume volume(const Segment& segment, int process, int64_t shard) const;

 private:
  const Bucket& bucket_;
  ExchangeKind kind_;
  bool shard_;
  int64_t times_per_step_;
  ElementType type_;
};

/// Calls visit(exchange) for every exchange of a step in which any process sends or receives.
template <class Visit>
void for_each_exchange(const ExchangePlan& exchanges, Visit visit) {
  for (int bucket = 0; bucket < static_cast<int>(exchanges.buckets.size()); ++bucket)
    for (ExchangeKind kind : kExchangeKinds)
      if (const Exchange exchange(exchanges, bucket, kind); exchange.has_peers()) visit(exchange);
}

/// Numbers of elements of a bucket that one process stores, updates and exchanges.
struct BucketElements {
  int64_t read = 0;     ///< in segments whose values it stores
  int64_t held = 0;     ///< in segments that it holds
  int64_t shard = 0;    ///< that it averages
  int64_t updated = 0;  ///< that its optimizer updates: the shard, or without `shard` all held elements
  std::array<Volume, kExchangeKinds.size()> exchanged = {};  ///< by ExchangeKind
  bool is_alone = false;  ///< every segment has one holder: no process exchanges gradients of this bucket
  /// Whether the sum of gradients, which is in process order, can begin with this process's: they are the
  /// first or the second summand, or the only one.
  bool begins_sum = false;
  bool has_one_summand = false;  ///< is_alone, and a step has a single backward pass on each process

  const Volume& of(ExchangeKind kind) const { return exchanged[static_cast<size_t>(kind)]; }
};
BucketElements elements_on(const ExchangePlan& exchanges, int bucket, int process);

// Determines when the exchanges of a step begin and end (docs/design.md, "What overlaps"). The engine carries
// out these events with tensors; the memory forecast simulates them with sizes.
//
// Gradients are reduced from the deepest bucket to the first, each bucket as soon as all its gradients are
// ready in the last backward pass of the step (or of each micro-batch, train.reduce_every). New values are
// gathered from the first bucket to the deepest during the next forward pass, which waits for them branch by
// branch. The order is the same on all processes, in whatever order gradients become ready: a bucket that is
// ready early waits for the deeper buckets.

/// Largest number of exchanges of one direction in flight at a time: one is packed or unpacked while the
/// other is in flight. More would only use more buffers.
inline constexpr size_t kMostInFlight = 2;

/// An action to take for the exchange of a bucket.
struct ExchangeEvent {
  enum class What {
    kBegin,  ///< pack and send
    kEnd,    ///< wait for the exchange and use the received data
  };
  What what = What::kBegin;
  ExchangeKind kind = ExchangeKind::kReduceGradients;
  int bucket = 0;

  bool operator==(const ExchangeEvent&) const = default;
};
using ExchangeEvents = std::vector<ExchangeEvent>;

/// The caller must carry out the events that a function returns, in order, before it calls the next function.
class ExchangeOrder {
 public:
  /// The index must outlive it.
  explicit ExchangeOrder(const BucketIndex& index);

  /// Call this when a backward pass begins that computes gradients of these parameters. `last`: it is the
  /// last pass before they are reduced. The reduction that the previous pass began must be finished.
  void begin_backward(const std::vector<int>& parameters, bool last);
  /// Call this when the pass has added to the parameter's gradient. Throws std::logic_error if one of the
  /// parameter's buckets is already being reduced.
  ExchangeEvents gradient_ready(int parameter);
  bool is_ready(int parameter) const { return is_ready_[static_cast<size_t>(parameter)] != 0; }
  /// Whether the last pass before a reduction has begun and finish_reducing() has not been called since.
  bool is_reducing() const { return is_last_ && !is_ready_.empty(); }
  /// Call this when the last pass is over: reduces all remaining buckets, whether or not their gradients are
  /// ready. Throws std::logic_error if there was no pass.
  ExchangeEvents finish_reducing();
  /// Gathers averaged gradients to all holders (without `shard`).
  ExchangeEvents gather_gradients() const;
  /// Call this when new values have been computed.
  ExchangeEvents begin_gathering();
  /// Call this when the forward pass is about to read the parameters at this branch; -1: those before all
  /// branches.
  ExchangeEvents reach(int branch);

 private:
  int buckets() const { return static_cast<int>(index_->parameters_of.size()); }
  void fill_gathering(ExchangeEvents& events);

  const BucketIndex* index_;
  bool is_last_ = false;        ///< whether this is the last backward pass before gradients are reduced
  std::vector<char> is_ready_;  ///< by parameter, in this pass; empty before the first pass
  std::vector<int> missing_;    ///< by bucket: number of parameters whose gradient is not ready
  int next_reduced_ = -1;       ///< goes from the deepest bucket to 0
  std::deque<int> reducing_;    ///< buckets, oldest first
  int next_gathered_ = 0;
  std::deque<int> gathering_;
};

}  // namespace sdp
