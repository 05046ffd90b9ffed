#pragma once

// What the engine keeps of one bucket on one process. Internal to engine/.

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "subnet/exchange.h"

namespace sdp {

/// The range of a segment that this process updates, and where it stands in the bucket's state tensors.
struct SegmentView {
  int segment = 0;
  int64_t begin = 0;  ///< in the segment
  int64_t elements = 0;
  int64_t offset = 0;  ///< in moments, master and the gradient that is applied
};

struct Engine::BucketState {
  at::TensorOptions sum_options;
  std::vector<SegmentView> segments;  ///< what the optimizer updates here: own shares, or all held (no shard)
  std::vector<SegmentView> shares;    ///< own shares; offsets in gradient_share
  /// By segment: where it stands in accumulator and gradient_full, and its share in gradient_share; -1 where
  /// it is not held.
  std::vector<int64_t> held_offsets;
  std::vector<int64_t> share_offsets;
  BucketElements elements;

  std::vector<at::Tensor> moments;  ///< sum type
  at::Tensor master;                ///< sum type; undefined where the values themselves have that type
  at::Tensor updated;         ///< master, or new values of the sum type; from step until they are gathered
  at::Tensor accumulator;     ///< sum type, [held]; from the first gradient until they are sent
  at::Tensor gradient_share;  ///< sum type, [share]; from the step's first reduction to step
  int64_t reductions = 0;     ///< of this step, in gradient_share
  at::Tensor gradient_full;   ///< the bucket's type, [held]; from reduce to step, without shard

  static BucketState make(const Schedule& schedule, int bucket, int process, int moment_count,
                          const at::TensorOptions& sum_options);
  void allocate_accumulator();
  /// The gradient `segments` index into, of the sum type.
  at::Tensor update_gradient() const;
};

/// One exchange under way, with the buffers that it reads and writes.
struct Engine::InFlight {
  int bucket = 0;
  ExchangeKind kind = ExchangeKind::kReduceGradients;
  at::Tensor send;
  at::Tensor receive;
  std::vector<int64_t> send_splits;
  std::vector<int64_t> receive_splits;
  at::Tensor own;  ///< this process's contribution to its own shares, sum type
  ExchangeClock::Start start;
  Pending pending;
};

}  // namespace sdp
