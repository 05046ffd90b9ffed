#pragma once

// The exchanges of a bucket: who sends how many elements of which segments to whom. Costs, traffic between
// nodes, the memory forecast and the engine's buffers take their sizes from here.
//
// Each holder of a segment averages its share of the gradients, and then has something that others need. So
// every exchange is about shares: a reduce-scatter brings each share from all its `peers` to the holder, an
// all-gather brings it from the holder to all its peers. What a process keeps is not sent.

#include <array>
#include <cstdint>
#include <vector>

#include "subnet/schedule.h"

namespace sdp {

enum class ExchangeKind {
  kReduceGradients,  ///< reduce-scatter: gradients of a share, from all who hold the segment
  kGatherGradients,  ///< all-gather, without `shard`: averaged gradients, to all who hold the segment
  kGatherValues,     ///< all-gather: new values, to all who read the segment and did not compute them
};
inline constexpr std::array kExchangeKinds = {ExchangeKind::kReduceGradients, ExchangeKind::kGatherGradients,
                                              ExchangeKind::kGatherValues};

/// The processes that a segment's shares come from or go to: `among`, without those of `besides`.
struct Peers {
  const MemberSet* among = nullptr;
  const MemberSet* besides = nullptr;  ///< all of them are in `among`; may be null

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

/// One exchange of one bucket, seen by any process. The schedule must outlive it.
class Exchange {
 public:
  Exchange(const Schedule& schedule, int bucket, ExchangeKind kind);

  const Bucket& bucket() const { return bucket_; }
  ElementType type() const { return type_; }  ///< of the elements on the wire
  bool is_reduction() const { return kind_ == ExchangeKind::kReduceGradients; }
  /// How often it takes place in a step.
  int64_t times_per_step() const { return times_per_step_; }
  Peers peers(const Segment& segment) const;
  /// Whether any process sends or receives.
  bool has_peers() const;

  /// Elements of the message that `from` sends to `to`.
  int64_t elements(int from, int to) const;
  /// The ranges of segments that this message has, one after another: visit(the segment's place in the
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
  /// The sum over all messages of the process that have a part of the segment. `share`: what the process has
  /// of the segment's shares.
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

/// What of a bucket concerns one process, in elements.
struct BucketElements {
  int64_t read = 0;     ///< of segments whose values it has
  int64_t held = 0;     ///< of segments that it holds
  int64_t share = 0;    ///< which it averages
  int64_t updated = 0;  ///< by its optimizer: the share, or without `shard` all that it holds
  std::array<Volume, kExchangeKinds.size()> exchanged = {};  ///< by ExchangeKind

  const Volume& of(ExchangeKind kind) const { return exchanged[static_cast<size_t>(kind)]; }
};
BucketElements elements_on(const Schedule& schedule, int bucket, int process);

}  // namespace sdp
