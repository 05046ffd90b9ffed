#pragma once

// Visits the state that the optimizer updates on this process, piece by piece. Internal to engine/.

#include "engine/bucket_state.h"

namespace sdp {

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
