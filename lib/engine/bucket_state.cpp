#include "engine/bucket_state.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sdp {

std::vector<PieceRange> piece_ranges(const Segment& segment, int64_t begin, int64_t elements) {
  std::vector<PieceRange> ranges;
  for (const Piece& piece : segment.pieces) {
    const int64_t from = std::max(begin, piece.offset);
    const int64_t to = std::min(begin + elements, piece.offset + piece.elements);
    if (from < to)
      ranges.push_back({.parameter = piece.parameter,
                        .begin = from - piece.offset,
                        .end = to - piece.offset,
                        .offset = from - begin});
  }
  return ranges;
}

Engine::BucketState Engine::BucketState::make(const Schedule& schedule, int bucket_index, int process,
                                              int moment_count, const at::TensorOptions& sum_options) {
  const Bucket& bucket = schedule.buckets[bucket_index];
  BucketState state;
  state.sum_options = sum_options;
  for (int r = 0; r < static_cast<int>(bucket.segments.size()); ++r) {
    const Segment& segment = bucket.segments[r];
    const bool held = segment.holder_index(process) >= 0;
    state.held_offsets.push_back(held ? state.held_elements : -1);
    if (!held) continue;
    const SegmentView whole{
        .segment = r, .begin = 0, .elements = segment.elements, .offset = state.held_elements};
    const SegmentView part{.segment = r,
                           .begin = segment.part_begin(process),
                           .elements = segment.part_elements(process),
                           .offset = state.part_elements};
    state.held_elements += segment.elements;
    state.part_elements += part.elements;
    if (part.elements > 0) state.parts.push_back(part);
    if (!schedule.options.shard) state.segments.push_back(whole);
  }
  if (schedule.options.shard) state.segments = state.parts;

  const int64_t updated = schedule.options.shard ? state.part_elements : state.held_elements;
  for (int m = 0; m < moment_count; ++m)
    state.moments.push_back(at::zeros({updated}, sum_options));
  if (bytes_of(bucket.type) < bytes_of(sum_type(schedule.options.precision)))
    state.master = at::empty({updated}, sum_options);
  return state;
}

void Engine::BucketState::allocate_accumulator() {
  accumulator = at::zeros({held_elements}, sum_options);
}

}  // namespace sdp
