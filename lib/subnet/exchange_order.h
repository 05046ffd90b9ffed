#pragma once

// When the exchanges of a step begin and end (docs/design.md, "What overlaps"). The engine
// runs what this says with tensors; the memory forecast runs it with sizes.
//
// Gradients are reduced from the deepest bucket to the first, each bucket as soon as all its gradients have
// come in the last backward pass of the step (or of each micro-batch, train.reduce_every); new values are
// gathered from the first bucket to the deepest during the next forward pass, which waits for them branch by
// branch. The order is the same on all processes, whatever order gradients come in: a bucket that is ready
// early waits for the deeper ones.

#include <cstddef>
#include <deque>
#include <vector>

#include "subnet/exchange.h"
#include "subnet/schedule.h"

namespace sdp {

/// Exchanges of one direction under way at a time: one is packed or unpacked while the other is under way;
/// more would only hold more buffers.
inline constexpr size_t kMostInFlight = 2;

/// What is to be done with the exchange of a bucket.
struct ExchangeEvent {
  enum class What {
    kBegin,  ///< pack and send
    kEnd,    ///< wait for it and take what has come
  };
  What what = What::kBegin;
  ExchangeKind kind = ExchangeKind::kReduceGradients;
  int bucket = 0;

  bool operator==(const ExchangeEvent&) const = default;
};
using ExchangeEvents = std::vector<ExchangeEvent>;

/// Every function that returns events has them run in their order before the next call.
class ExchangeOrder {
 public:
  /// The index must outlive it.
  explicit ExchangeOrder(const BucketIndex& index);

  /// A backward pass begins that is to leave gradients of these parameters; `last`: before they are reduced.
  /// What the pass before began to reduce has been finished.
  void begin_backward(const std::vector<int>& parameters, bool last);
  /// The pass has left a gradient of the parameter, or more of it. Throws std::logic_error where its bucket
  /// is already being reduced.
  ExchangeEvents gradient_came(int parameter);
  bool has_come(int parameter) const { return has_come_[static_cast<size_t>(parameter)] != 0; }
  /// Whether the last pass before a reduction has begun, and finish_reducing() was not called since.
  bool is_reducing() const { return is_last_ && !has_come_.empty(); }
  /// The last pass is over: every bucket that is left is reduced, whether its gradients came or not. Throws
  /// std::logic_error without a pass.
  ExchangeEvents finish_reducing();
  /// Averaged gradients to all who hold them (no shard).
  ExchangeEvents gather_gradients() const;
  /// New values are there.
  ExchangeEvents begin_gathering();
  /// The forward pass is about to read what stands at this branch, -1: before all branches.
  ExchangeEvents reach(int branch);

 private:
  int buckets() const { return static_cast<int>(index_->parameters_of.size()); }
  void fill_gathering(ExchangeEvents& events);

  const BucketIndex* index_;
  bool is_last_ = false;        ///< the backward pass, before gradients are reduced
  std::vector<char> has_come_;  ///< by parameter, in this pass; empty before the first
  std::vector<int> missing_;    ///< by bucket: parameters whose gradient has not come
  int next_reduced_ = -1;       ///< from the deepest bucket to 0
  std::deque<int> reducing_;    ///< buckets, oldest first
  int next_gathered_ = 0;
  std::deque<int> gathering_;
};

}  // namespace sdp
