#include "cost/record_step.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "layers/loss.h"
#include "model/make_model.h"

namespace sdp {
namespace {

class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(Recorder& recorder, int parameter) : recorder_(recorder), parameter_(parameter) {}
  void operator()(const at::Tensor& leaf) override { recorder_.gradient_ready(parameter_, leaf.grad()); }

 private:
  Recorder& recorder_;
  const int parameter_;
};

struct Batch {
  at::Tensor input, labels;
};

Batch batch_of(const StepShape& step, int64_t size) {
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(at::kMeta);
  const ModelSpec& model = step.model;
  if (model.reads_tokens())
    return {at::empty({size, step.sequence_length}, integers),
            at::empty({size, step.sequence_length}, integers)};
  const int64_t side = model.image_size();
  return {at::empty({size, model.image_channels(), side, side},
                    integers.dtype(scalar_type(compute_type(step.precision)))),
          at::empty({size}, integers)};
}

/// The loss of a language model computes all rows at once here; StepCaptures knows how many there are at a
/// time.
at::Tensor loss_of(const at::Tensor& features, const Head& head, const at::Tensor& labels) {
  if (features.dim() == 3)
    return linear_cross_entropy(features.flatten(0, 1), head.weight, labels.flatten(),
                                /*label_smoothing=*/0, /*rows_at_a_time=*/labels.numel());
  return training_loss(features, head, {.labels = labels}, /*label_smoothing=*/0).loss;
}

at::Tensor meta_tensor(at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, at::TensorOptions(type).device(at::kMeta));
}

}  // namespace

WorkerTensors::WorkerTensors(const SubnetPlan& plan, int worker, Precision precision, const MakeTensor& make,
                             bool trains)
    : plan_(plan), worker_(worker) {
  const auto add = [&](const auto& layout, at::ScalarType type) {
    std::vector<BranchPart> parts = plan.parts_of(worker, layout);
    for (int part = 0; part < static_cast<int>(parts.size()); ++part)
      tensors_[{layout.name, part}] =
          make(shape_of_units(layout.shape, layout.slice, plan, parts[part].units), type)
              .contiguous(storage_format(layout.shape.size()));
    return parts;
  };
  for (int p = 0; p < static_cast<int>(plan.layout.parameters.size()); ++p) {
    const ParameterLayout& parameter = plan.layout.parameters[p];
    const std::vector<BranchPart> parts = add(parameter, scalar_type(element_type(parameter, precision)));
    if (!parts.empty() && !parts.front().frozen)
      owned_.emplace_back(p, tensors_.at({parameter.name, 0}).requires_grad_(trains));
  }
  for (const BufferLayout& buffer : plan.layout.buffers)
    add(buffer, precision == Precision::kFp64 ? at::kDouble : at::kFloat);
}

at::Tensor WorkerTensors::find_parameter(const std::string& name, int part) const {
  return tensors_.at({name, part});
}

at::Tensor WorkerTensors::find_buffer(const std::string& name, int part) const {
  return tensors_.at({name, part});
}

std::vector<RecordedLayerGroup> record_step(const StepShape& step, const SubnetPlan& plan, int worker,
                                            int64_t batch_size, const std::vector<int>& left_out) {
  const at::AutoGradMode with_grad(true);  // also within a computation without gradients
  const WorkerTensors tensors(plan, worker, step.precision, meta_tensor);
  const std::unique_ptr<Model> model = make_subnetwork(step.model, plan, worker, tensors);
  for (const int branch : left_out)
    model->unbind_branch(branch);
  const size_t layer_groups = plan.layout.branches.size() + 2;
  Recorder recorder(layer_groups, step.device_kernels);
  for (const auto& [parameter, leaf] : tensors.owned())
    torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<GradientHook>(recorder, parameter));
  ForwardMode mode{.training = true,
                   .checkpoint_branches = step.checkpoint_activations,
                   .branch_scales = plan.branch_scales,
                   .before_branch = [&](int branch) { recorder.enter(static_cast<size_t>(branch) + 1); }};
  if (step.model.draws_random_numbers()) mode.generator = at::detail::createCPUGenerator();
  recorder.enter(0);
  const Batch batch = batch_of(step, batch_size);
  const at::Tensor features = model->features(batch.input, mode);
  recorder.enter(layer_groups - 1);
  const at::Tensor loss = loss_of(features, model->head(), batch.labels);
  recorder.begin_backward();
  loss.backward();
  return recorder.finish();
}

std::vector<RecordedLayerGroup> record_evaluation(const StepShape& step, const SubnetPlan& whole,
                                                  int64_t batch_size, bool training, bool counts_batch) {
  const at::NoGradGuard no_grad;
  const WorkerTensors tensors(whole, 0, step.precision, meta_tensor, /*trains=*/false);
  const std::unique_ptr<Model> model = make_subnetwork(step.model, whole, 0, tensors);
  std::optional<Batch> batch;
  if (!counts_batch) batch = batch_of(step, batch_size);
  const size_t layer_groups = whole.layout.branches.size() + 2;
  Recorder recorder(layer_groups, step.device_kernels);
  recorder.enter(0);
  if (counts_batch) batch = batch_of(step, batch_size);
  const at::Tensor features = model->features(
      batch->input, {.training = training,
                     .before_branch = [&](int branch) { recorder.enter(static_cast<size_t>(branch) + 1); }});
  recorder.enter(layer_groups - 1);
  const Head head = model->head();
  if (training) {  // the logits are not used
    head.logits(features);
    return recorder.finish();
  }
  const at::Tensor labels = batch->labels.flatten();
  const at::Tensor weights = at::empty({2, labels.numel()}, labels.options().dtype(at::kDouble));
  // Further rows of logits need no more memory than the first.
  const int64_t rows =
      std::min(labels.numel(), logit_rows_at_a_time(head.outputs(features), /*device_kernels=*/false));
  prediction_sums(features.flatten(0, -2).narrow(0, 0, rows), head, labels.narrow(0, 0, rows),
                  weights.narrow(1, 0, rows), !step.model.reads_tokens() && step.model.num_classes() > 5);
  return recorder.finish();
}

}  // namespace sdp
