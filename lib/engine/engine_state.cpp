// The engine's state as checkpoints see it: ranges keyed by parameter, unit and elements.

#include <ATen/ATen.h>

#include "engine/bucket_state.h"
#include "subnet/accounting.h"

namespace sdp {

std::vector<StateRange> Engine::state_ranges(bool only_own_part) {
  const std::vector<std::string> names = moment_names(optimizer_);
  std::vector<StateRange> ranges;
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    BucketState& state = states_[b];
    for (const SegmentView& view : state.segments) {
      const Segment& segment = schedule_.buckets[b].segments[view.segment];
      int64_t begin = view.begin;
      int64_t elements = view.elements;
      if (only_own_part) {
        begin = segment.part_begin(comm_.rank());
        elements = segment.part_elements(comm_.rank());
      }
      const int64_t at_run = begin - view.begin + view.offset;
      for (const PieceRange& piece : piece_ranges(segment, begin, elements)) {
        const int64_t size = piece.end - piece.begin;
        const int64_t at_state = at_run + piece.offset;
        const auto add = [&](const std::string& kind, const at::Tensor& values) {
          ranges.push_back({kind, piece.parameter, segment.unit, piece.begin, piece.end, values});
        };
        add("value", state.master.defined()
                         ? state.master.narrow(0, at_state, size)
                         : store_.segment_values(b, view.segment).narrow(0, begin + piece.offset, size));
        for (size_t m = 0; m < names.size(); ++m)
          add(names[m], state.moments[m].narrow(0, at_state, size));
      }
    }
  }
  return ranges;
}

std::vector<StateRange> Engine::owned_state() {
  return state_ranges(/*only_own_part=*/true);
}

std::vector<StateRange> Engine::required_state() {
  std::vector<StateRange> ranges = state_ranges(/*only_own_part=*/false);
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    for (int r = 0; r < static_cast<int>(schedule_.buckets[b].segments.size()); ++r) {
      if (!store_.holds(b, r)) continue;
      const Segment& segment = schedule_.buckets[b].segments[r];
      for (const Piece& piece : segment.pieces)
        ranges.push_back({"value", piece.parameter, segment.unit, 0, piece.elements,
                          store_.segment_values(b, r).narrow(0, piece.offset, piece.elements)});
    }
  }
  return ranges;
}

void Engine::set_step_count(int64_t step_count) {
  const at::NoGradGuard no_grad;
  steps_ = step_count;
  step_tensor_.fill_(static_cast<double>(step_count));
}

}  // namespace sdp
