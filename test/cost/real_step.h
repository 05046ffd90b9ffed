#pragma once

// Real steps on the CPU, whose allocations are counted.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

#include "cost/record_step.h"
#include "cost/step_captures.h"
#include "layers/loss.h"
#include "model/make_model.h"
#include "process/allocations.h"

namespace sdp {

inline WorkerTensors random_tensors(const SubnetPlan& plan, int worker, Precision precision) {
  return {plan, worker, precision,
          [](at::IntArrayRef shape, at::ScalarType type) { return at::rand(shape, type).mul_(0.1); }};
}

class GradientIsNotCounted : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor& leaf) override { leave_out(leaf.grad()); }
};

/// Bytes of tensors besides weights and their gradients.
struct Memory {
  int64_t kept = 0;  ///< for the backward pass
  int64_t most_forward = 0, most_backward = 0;

  bool operator==(const Memory&) const = default;
};

struct Batch {
  at::Tensor input, labels;
};

inline Batch random_batch(const StepShape& step, int64_t size) {
  const ModelSpec& spec = step.model;
  const auto integers = [&](int64_t below, std::vector<int64_t> shape) {
    return at::randint(below, shape, at::TensorOptions(at::kLong));
  };
  if (spec.reads_tokens())
    return {integers(spec.vocab_size(), {size, step.sequence_length}),
            integers(spec.vocab_size(), {size, step.sequence_length})};
  return {at::rand({size, spec.image_channels(), spec.image_size(), spec.image_size()},
                   scalar_type(compute_type(step.precision))),
          integers(spec.num_classes(), {size})};
}

inline Memory allocated(const StepShape& step, const SubnetPlan& plan, int worker, int64_t batch_size) {
  const WorkerTensors tensors = random_tensors(plan, worker, step.precision);
  const std::unique_ptr<Model> model = make_subnetwork(step.model, plan, worker, tensors);
  for (const auto& [parameter, leaf] : tensors.owned())
    torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<GradientIsNotCounted>());
  reset_peak();
  const int64_t before = allocated_now().total();
  const Batch batch = random_batch(step, batch_size);
  const at::Tensor features =
      model->features(batch.input, {.training = true, .checkpoint_branches = step.checkpoint_activations});
  const at::Tensor loss = training_loss(features, model->head(), {.labels = batch.labels}, 0).loss;
  Memory memory{.kept = allocated_now().total() - before,
                .most_forward = allocated_at_peak().total() - before};
  reset_peak();
  loss.backward();
  memory.most_backward = allocated_at_peak().total() - before;
  return memory;
}

struct Regime {
  const char* coverage;
  Construction construction;
  Masking masking;
};
inline constexpr Regime kRegimes[] = {{"1", Construction::kBlock, Masking::kForward},
                                      {"1/2", Construction::kBlock, Masking::kForward},
                                      {"1/2", Construction::kBlock, Masking::kBackward},
                                      {"1/2", Construction::kNeuron, Masking::kForward},
                                      {"1/2", Construction::kNeuron, Masking::kBackward}};

inline SubnetPlan plan_of(const ModelLayout& layout, const Regime& regime, int64_t workers = 2) {
  SubnetworkSpec spec;
  spec.workers = workers;
  spec.coverage.text = regime.coverage;
  spec.construction = regime.construction;
  spec.masking = regime.masking;
  spec.assignment = Assignment::kWindow;
  return make_plan(layout, spec, 0);
}

}  // namespace sdp
