#include "cost/layouts.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "cost/record_step.h"
#include "cost/recorded_call.h"
#include "cost/step_captures.h"
#include "layers/tensors.h"
#include "subnet/plan.h"

namespace sdp {
namespace {

constexpr int64_t kSamples = 8;

/// Of a pass. What the backward pass computes other than recomputation counts as `input_gradient`.
Flops flops_of(const RecordedPass& pass, bool is_backward) {
  Flops flops;
  for (const RecordedCall& call : pass.calls) {
    double& sum = !is_backward            ? flops.forward
                  : call.is_recomputation ? flops.frozen_recompute
                                          : flops.input_gradient;
    for (const ProductSize& p : cost_of(call).products)
      sum += 2 * p.m * p.k * p.n * p.count;
  }
  return flops * (1.0 / static_cast<double>(kSamples));
}

/// The two workers of a plan in which each unit has one owner.
class TwoWorkers {
 public:
  TwoWorkers(const ModelLayout& layout, const StepShape& step, Construction construction, Masking masking,
             const std::vector<int>& left_out) {
    SubnetworkSpec spec;
    spec.workers = 2;
    spec.coverage.text = "1/2";
    spec.construction = construction;
    spec.masking = masking;
    spec.assignment = Assignment::kWindow;
    plan_ = make_plan(layout, spec, 0);
    for (const int worker : {0, 1})
      for (const RecordedLayerGroup& layer_group : record_step(step, plan_, worker, kSamples, left_out)) {
        steps_[worker].push_back(flops_of(layer_group.forward, false));
        steps_[worker].back() += flops_of(layer_group.backward, true);
      }
  }

  /// The branch, with the layers between it and the next one, on the worker that owns it, or on the other.
  const Flops& owned(int branch) const { return of(branch, plan_.owns_any_of(0, branch) ? 0 : 1); }
  const Flops& other(int branch) const { return of(branch, plan_.owns_any_of(0, branch) ? 1 : 0); }
  Flops both(int branch) const {
    Flops sum = of(branch, 0);
    return sum += of(branch, 1);
  }
  /// Of the layers before the first branch and of the loss.
  Flops ends() const {
    Flops sum = steps_[0].front();
    return sum += steps_[0].back();
  }

 private:
  const Flops& of(int branch, int worker) const { return steps_[worker].at(static_cast<size_t>(branch) + 1); }
  SubnetPlan plan_;
  std::vector<Flops> steps_[2];  ///< by worker and layer group
};

/// `owned`: with both gradients as one. `frozen`: the same layers without the weights' gradient.
Flops with_weight_gradient(const Flops& owned, const Flops& frozen) {
  return {.forward = owned.forward,
          .weight_gradient = owned.input_gradient - frozen.input_gradient,
          .input_gradient = frozen.input_gradient,
          .frozen_recompute = frozen.frozen_recompute};
}

}  // namespace

void add_flops(ModelLayout& layout, const ModelSpec& spec, int64_t sequence_length) {
  const StepShape step{.model = spec, .sequence_length = sequence_length};
  const auto branches = static_cast<int>(layout.branches.size());
  const std::vector<int> first = first_of_kind(layout);
  std::vector<int> left_out;  // of each kind, one branch is enough
  for (int b = 0; b < branches; ++b)
    if (first[b] >= 0 && first[b] != b) left_out.push_back(b);
  const TwoWorkers with_and_without(layout, step, Construction::kBlock, Masking::kForward, left_out);
  const TwoWorkers owned_and_frozen(layout, step, Construction::kBlock, Masking::kBackward, left_out);
  const bool has_slices = std::ranges::any_of(
      layout.branches, [](const BranchLayout& branch) { return branch.hidden_width > 1; });
  std::optional<TwoWorkers> halves, frozen_halves;
  if (has_slices) {
    halves.emplace(layout, step, Construction::kNeuron, Masking::kForward, left_out);
    frozen_halves.emplace(layout, step, Construction::kNeuron, Masking::kBackward, left_out);
  }
  layout.shared_flops = with_and_without.ends();
  for (int b = 0; b < branches; ++b) {
    const int like = first[b] < 0 ? b : first[b];
    const Flops& between = with_and_without.other(like);
    layout.shared_flops += between;
    BranchLayout& branch = layout.branches[b];
    if (like != b) {
      branch.flops = layout.branches[like].flops;
      branch.unsliced_flops = layout.branches[like].unsliced_flops;
      continue;
    }
    const Flops whole = with_and_without.owned(b) - between;
    branch.flops = with_weight_gradient(whole, owned_and_frozen.other(b) - between);
    if (branch.hidden_width == 1) continue;  // a single slice is the whole branch
    // What is not sliced is in both halves, the rest in one of them. With frozen slices, both workers have
    // the whole width: one slice owned and the other frozen.
    const Flops unsliced = halves->both(b) - between - between - whole;
    const Flops frozen_slices = frozen_halves->both(b) - between - between - whole - unsliced;
    branch.unsliced_flops = with_weight_gradient(unsliced, branch.flops - frozen_slices);
  }
}

std::optional<ModelLayout> narrow_layout(const SubnetPlan& plan, int worker) {
  if (plan.construction != Construction::kNeuron || plan.keeps_frozen_units()) return std::nullopt;
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b)
    if (!plan.owns_any_of(worker, b)) return std::nullopt;
  ModelLayout narrow = plan.layout;
  const auto cut = [&](auto& tensors) {
    for (auto& tensor : tensors)
      if (tensor.branch)
        tensor.shape =
            shape_of_units(tensor.shape, tensor.slice, plan, plan.parts_of(worker, tensor).front().units);
  };
  cut(narrow.parameters);
  cut(narrow.buffers);
  for (int b = 0; b < static_cast<int>(narrow.branches.size()); ++b) {
    BranchLayout& branch = narrow.branches[b];
    const int64_t width = plan.owned_width(worker, b);
    const Flops sliced = branch.flops - branch.unsliced_flops;
    branch.flops = sliced * (static_cast<double>(width) / static_cast<double>(branch.hidden_width));
    branch.flops += branch.unsliced_flops;
    branch.hidden_width = width;
  }
  return narrow;
}

ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length) {
  ModelLayout layout = structure_of(spec, sequence_length);
  add_flops(layout, spec, sequence_length);
  return layout;
}

}  // namespace sdp
