#include "capture/layouts.h"

#include <vector>

#include "capture/branch_kinds.h"
#include "capture/call_cost.h"
#include "capture/record_step.h"
#include "model/layouts.h"
#include "subnet/plan.h"

namespace sdp {
namespace {

constexpr int64_t kSamples = 8;

struct StepFlops {
  double forward = 0;
  double training = 0;

  StepFlops& operator+=(const StepFlops& other) {
    forward += other.forward;
    training += other.training;
    return *this;
  }
};

double flops_of(const std::vector<RecordedCall>& calls) {
  double flops = 0;
  for (const RecordedCall& call : calls)
    for (const ProductSize& p : cost_of(call, /*samples=*/0).products)
      flops += 2 * p.m * p.k * p.n * p.count;
  return flops / static_cast<double>(kSamples);
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
      for (const RecordedSegment& segment : record_step(step, plan_, worker, kSamples, left_out)) {
        const double forward = flops_of(segment.forward.calls);
        steps_[worker].push_back({forward, forward + flops_of(segment.backward.calls)});
      }
  }

  /// The branch, with the layers between it and the next one, on the worker that owns it, or on the other.
  const StepFlops& owned(int branch) const { return of(branch, plan_.owns_any_of(0, branch) ? 0 : 1); }
  const StepFlops& other(int branch) const { return of(branch, plan_.owns_any_of(0, branch) ? 1 : 0); }
  StepFlops both(int branch) const {
    StepFlops sum = of(branch, 0);
    return sum += of(branch, 1);
  }
  /// Of the layers before the first branch and of the loss.
  StepFlops ends() const {
    StepFlops sum = steps_[0].front();
    return sum += steps_[0].back();
  }

 private:
  const StepFlops& of(int branch, int worker) const {
    return steps_[worker].at(static_cast<size_t>(branch) + 1);
  }
  SubnetPlan plan_;
  std::vector<StepFlops> steps_[2];  ///< by worker and segment
};

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
  const TwoWorkers halves(layout, step, Construction::kNeuron, Masking::kForward, left_out);
  const TwoWorkers frozen_halves(layout, step, Construction::kNeuron, Masking::kBackward, left_out);
  layout.shared_flops = with_and_without.ends().training;
  for (int b = 0; b < branches; ++b) {
    if (first[b] >= 0 && first[b] != b) {
      layout.shared_flops += with_and_without.other(first[b]).training;
      layout.branches[b].flops = layout.branches[first[b]].flops;
      layout.branches[b].unsliced_flops = layout.branches[first[b]].unsliced_flops;
      continue;
    }
    const StepFlops &whole = with_and_without.owned(b), &between = with_and_without.other(b);
    const double frozen = owned_and_frozen.other(b).training;
    layout.shared_flops += between.training;
    BranchLayout& branch = layout.branches[b];
    branch.flops = {.forward = whole.forward - between.forward,
                    .training = whole.training - between.training,
                    .training_frozen = frozen - between.training};
    // What is not sliced is in both halves, the rest in one of them. A single slice is the whole branch.
    if (branch.hidden_width == 1) continue;
    const StepFlops sum = halves.both(b);
    Flops& unsliced = branch.unsliced_flops;
    unsliced.forward = sum.forward - whole.forward - between.forward;
    unsliced.training = sum.training - whole.training - between.training;
    // With frozen slices, both workers have a whole width: one slice owned and the other frozen.
    const double frozen_slices =
        frozen_halves.both(b).training - whole.training - between.training - unsliced.training;
    unsliced.training_frozen = branch.flops.training_frozen - frozen_slices;
  }
}

ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length) {
  ModelLayout layout = structure_of(spec, sequence_length);
  add_flops(layout, spec, sequence_length);
  return layout;
}

}  // namespace sdp
