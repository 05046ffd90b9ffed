#pragma once

// The engine's state for one bucket on one process. Internal to engine/.

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "optim/update.h"
#include "subnet/exchange.h"

namespace sdp {

/// A range of a segment that this process updates, and its offset in the bucket's state tensors.
struct SegmentView {
  int segment = 0;
  int64_t begin = 0;  ///< in the segment
  int64_t elements = 0;
  int64_t offset = 0;  ///< in moments, master and the applied gradient
};

struct Engine::BucketState {
  at::TensorOptions sum_options;
  std::vector<SegmentView> segments;  ///< ranges updated here: own shares; without shard all held segments
  std::vector<SegmentView> shares;    ///< own shares; offsets in `gradients`
  /// By segment: its offset in accumulator and gradient_full, and the offset of its share in `gradients`; -1
  /// for segments that this process does not hold.
  std::vector<int64_t> held_offsets;
  std::vector<int64_t> share_offsets;
  BucketElements elements;

  std::vector<at::Tensor> moments;  ///< sum type
  at::Tensor master;                ///< sum type; undefined where the values themselves have that type
  /// The values that `segments` index into where the model reads them, flat and in order, if they are updated
  /// in place (subnet/storage.h); else empty.
  std::vector<at::Tensor> places;
  at::Tensor updated;      ///< master or a copy of the new values; from step() until they are gathered
  at::Tensor accumulator;  ///< sum type, [held]; from the first gradient until the bucket is sent
  /// Sum type; from the step's first reduction until step(). One tensor [share], or, if they are applied in
  /// place, one for each of `places`.
  std::vector<at::Tensor> gradients;
  int64_t reductions = 0;    ///< number of this step's reductions summed in `gradients`
  at::Tensor gradient_full;  ///< the bucket's type, [held]; without shard, from reduce() to step()

  static BucketState make(const Schedule& schedule, int bucket, int process, int moment_count,
                          const at::TensorOptions& sum_options);
  void allocate_accumulator();
  const at::Tensor& gradient_share() const { return gradients.at(0); }
  /// What an update of `updated`, or else of `places`, reads and writes. All of it has the sum type.
  UpdateTensors update_tensors() const;
};

/// An exchange in flight, with the buffers that it reads and writes.
struct Engine::InFlight {
  int bucket = 0;
  ExchangeKind kind = ExchangeKind::kReduceGradients;
  at::Tensor send;
  at::Tensor receive;
  std::vector<int64_t> send_splits;
  std::vector<int64_t> receive_splits;
  /// This process's contribution to its own shares, like BucketState::gradients.
  std::vector<at::Tensor> own;
  ExchangeClock::Start start;
  Pending pending;
};

template <class Visit>
void Engine::for_each_state_range(int bucket, bool only_own_share, Visit visit) const {
  for (const SegmentView& view : states_[bucket].segments) {
    const Segment& segment = schedule_.buckets[bucket].segments[view.segment];
    const int64_t begin = only_own_share ? segment.share_begin(comm_.rank()) : view.begin;
    const int64_t elements = only_own_share ? segment.share_elements(comm_.rank()) : view.elements;
    for (const PieceRange& piece : piece_ranges(segment, begin, elements))
      visit(StateRange{.kind = {},
                       .parameter = piece.parameter,
                       .unit = segment.unit,
                       .begin = piece.begin,
                       .end = piece.end,
                       .values = {}},
            begin - view.begin + view.offset + piece.offset);
  }
}

}  // namespace sdp
