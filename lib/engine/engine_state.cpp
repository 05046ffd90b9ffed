// The engine's state in the form that checkpoints store: ranges identified by parameter, unit and elements.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "engine/state_ranges.h"

namespace sdp {

std::vector<StateRange> Engine::owned_state() {
  await_all_values();
  const std::vector<std::string> names = optimizer_.state_names();
  std::vector<StateRange> ranges;
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    const BucketState& state = states_[b];
    const at::Tensor values = state.master.defined() ? state.master : read_updated(b);
    for_each_state_range(b, /*only_own_share=*/true, [&](StateRange range, int64_t at_state) {
      const auto add = [&](const std::string& kind, const at::Tensor& tensor) {
        range.kind = kind;
        range.values = tensor.narrow(0, at_state, range.end - range.begin);
        ranges.push_back(range);
      };
      add("value", values);
      for (size_t m = 0; m < names.size(); ++m)
        add(names[m], state.moments[m]);
    });
  }
  return ranges;
}

void Engine::load_state(const std::function<void(const StateRange& range)>& read) {
  const at::NoGradGuard no_grad;
  const std::vector<std::string> names = optimizer_.state_names();
  for (int b = 0; b < static_cast<int>(states_.size()); ++b) {
    const BucketState& state = states_[b];
    for_each_state_range(b, /*only_own_share=*/false, [&](StateRange range, int64_t at_state) {
      const auto fill = [&](const std::string& kind, const at::Tensor& tensor) {
        range.kind = kind;
        range.values = tensor.narrow(0, at_state, range.end - range.begin);
        read(range);
      };
      if (state.master.defined()) fill("value", state.master);
      for (size_t m = 0; m < names.size(); ++m)
        fill(names[m], state.moments[m]);
    });
    for (const Segment& segment : schedule_.buckets[b].segments) {
      if (!segment.is_read_by(comm_.rank())) continue;
      const at::Tensor values =
          at::empty({segment.elements},
                    at::TensorOptions(scalar_type(schedule_.buckets[b].type)).device(comm_.device()));
      for (const Piece& piece : segment.pieces)
        read({"value", piece.parameter, segment.unit, 0, piece.elements,
              values.narrow(0, piece.offset, piece.elements)});
      FlatCopies copies;
      store_.add_segment_writes(copies, segment, values);
      copies.run();
    }
  }
}

void Engine::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (int b : index_.buckets_of[parameter])
    for_each_state_range(b, /*only_own_share=*/true, [&](const StateRange& range, int64_t at_state) {
      if (range.parameter != parameter || range.unit != unit) return;
      const int64_t elements = range.end - range.begin;
      flat.narrow(0, range.begin, elements).copy_(states_[b].moments.back().narrow(0, at_state, elements));
    });
}

void Engine::set_step_count(int64_t step_count) {
  const at::NoGradGuard no_grad;
  steps_ = step_count;
  step_tensor_.fill_(static_cast<double>(step_count));
}

}  // namespace sdp
