#pragma once

// Determines when the exchanges of a step begin and end (docs/design.md, "What overlaps"). The engine carries
// out these events with tensors; the memory forecast simulates them with sizes.
//
// Gradients are reduced from the deepest bucket to the first, each bucket as soon as all its gradients are
// ready in the last backward pass of the step (or of each micro-batch, train.reduce_every). New values are
// gathered from the first bucket to the deepest during the next forward pass, which waits for them branch by
// branch. The order is the same on all processes, in whatever order gradients become ready: a bucket that is
// ready early waits for the deeper buckets.

#include <cstddef>
#include <deque>
#include <vector>

#include "subnet/exchange.h"
#include "subnet/schedule.h"

namespace sdp {

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
  ExchangeEvents gradient_came(int parameter);
  bool has_come(int parameter) const { return has_come_[static_cast<size_t>(parameter)] != 0; }
  /// Whether the last pass before a reduction has begun and finish_reducing() has not been called since.
  bool is_reducing() const { return is_last_ && !has_come_.empty(); }
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
  std::vector<char> has_come_;  ///< by parameter, in this pass; empty before the first pass
  std::vector<int> missing_;    ///< by bucket: number of parameters whose gradient is not ready
  int next_reduced_ = -1;       ///< goes from the deepest bucket to 0
  std::deque<int> reducing_;    ///< buckets, oldest first
  int next_gathered_ = 0;
  std::deque<int> gathering_;
};

}  // namespace sdp
