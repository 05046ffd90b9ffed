#pragma once

// The exchanges of a bucket: which process sends how many elements of which segments to which other process.
// Costs, traffic between nodes, the memory forecast and the engine's buffers take their sizes from here.
//
// Each holder of a segment averages its share of the gradients; other processes then need the result. So
// every exchange transfers shares: a reduce-scatter sends each share from all its `peers` to the holder, and
// an all-gather sends it from the holder to all its peers. A process does not send data to itself.

#include <array>
#include <cstdint>
#include <vector>

#include "subnet/schedule.h"

namespace sdp {

enum class ExchangeKind {
  kReduceGradients,  ///< reduce-scatter: gradients of a share, from all holders of the segment
  kGatherGradients,  ///< all-gather, without `shard`: averaged gradients, to all holders of the segment
  kGatherValues,     ///< all-gather: new values, to all readers of the segment that did not compute them
};
inline constexpr std::array kExchangeKinds = {ExchangeKind::kReduceGradients, ExchangeKind::kGatherGradients,
                                              ExchangeKind::kGatherValues};

/// The processes that a segment's shares come from or go to: those in `among` but not in `besides`.
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

/// One exchange of one bucket, for all processes. The schedule must outlive it.
class Exchange {
 public:
  Exchange(const Schedule& schedule, int bucket, ExchangeKind kind);

  const Bucket& bucket() const { return bucket_; }
  ElementType type() const { return type_; }  ///< of the elements on the wire
  bool is_reduction() const { return kind_ == ExchangeKind::kReduceGradients; }
  /// How often the exchange takes place per step.
  int64_t times_per_step() const { return times_per_step_; }
  Peers peers(const Segment& segment) const;
  /// Whether any process sends or receives.
  bool has_peers() const;

  /// Elements of the message that `from` sends to `to`.
  int64_t elements(int from, int to) const;
  /// Visits the ranges of segments that this message contains, in order: visit(the segment's index in the
  /// bucket, first element in the segment, elements).
  template <class Visit>
  void for_each_range(int from, int to, Visit visit) const {
    if (from == to) return;
    const int holder = is_reduction() ? to : from;
    const int peer = is_reduction() ? from : to;
    for (size_t s = 0; s < bucket_.segments.size(); ++s) {
      const Segment& segment = bucket_.segments[s];
      const int64_t elements = segment.share_elements(holder);
      if (elements > 0 && peers(segment).contains(peer)) visit(s, segment.share_begin(holder), elements);
    }
  }
  /// Elements of the segment that the process sends and receives in all its messages. `share`: the size of
  /// the process's share of the segment.
  Volume volume(const Segment& segment, int process, int64_t share) const;

 private:
  const Bucket& bucket_;
  ExchangeKind kind_;
  bool shard_;
  int64_t times_per_step_;
  ElementType type_;
};

/// Calls visit(exchange) for every exchange of a step in which any process sends or receives.
template <class Visit>
void for_each_exchange(const Schedule& schedule, Visit visit) {
  for (int bucket = 0; bucket < static_cast<int>(schedule.buckets.size()); ++bucket)
    for (ExchangeKind kind : kExchangeKinds)
      if (const Exchange exchange(schedule, bucket, kind); exchange.has_peers()) visit(exchange);
}

/// Numbers of elements of a bucket that one process stores, updates and exchanges.
struct BucketElements {
  int64_t read = 0;     ///< in segments whose values it stores
  int64_t held = 0;     ///< in segments that it holds
  int64_t share = 0;    ///< that it averages
  int64_t updated = 0;  ///< that its optimizer updates: the share, or without `shard` all held elements
  std::array<Volume, kExchangeKinds.size()> exchanged = {};  ///< by ExchangeKind
  bool is_alone = false;  ///< every segment has one holder: no process exchanges gradients of this bucket
  /// Whether the sum of gradients, which is in process order, can begin with this process's: they are the
  /// first or the second summand, or the only one.
  bool begins_sum = false;
  bool has_one_summand = false;  ///< is_alone, and a step has a single backward pass on each process

  const Volume& of(ExchangeKind kind) const { return exchanged[static_cast<size_t>(kind)]; }
};
BucketElements elements_on(const Schedule& schedule, int bucket, int process);

}  // namespace sdp
