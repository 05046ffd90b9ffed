#include "analysis/worker_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "cost/make_experiment.h"
#include "layers/loss.h"
#include "model/make_model.h"

namespace sdp {

WorkerModel::WorkerModel(const ExperimentSpec& spec, const SubnetPlan& plan, int worker, at::Device device,
                         const ValuesOf& values)
    : train_(spec.train),
      plan_(plan),
      exchanges_(make_exchange_plan(plan,
                                    make_slot_map(plan.workers, /*replicas=*/1, /*processes=*/plan.workers),
                                    exchange_options(spec, plan.layout))),
      store_(plan, exchanges_, /*process=*/worker, device) {
  {
    const at::NoGradGuard no_grad;
    for (int p = 0; p < static_cast<int>(plan.layout.parameters.size()); ++p)
      store_.write_parameter(p, values(p));
  }
  model_ = make_subnetwork(spec.model, plan, worker, store_.slot(0));
}

void WorkerModel::compute_gradients(const TensorBatch& batch) {
  for (const int parameter : store_.owned_parameters(0))
    store_.release_gradients(0, parameter);
  const at::Tensor features =
      model_->features(batch.input, {.training = true,
                                     .checkpoint_branches = train_.checkpoint_activations,
                                     .branch_scales = plan_.branch_scales});
  training_loss(features, model_->head(), batch.targets(), train_.label_smoothing).loss.backward();
}

at::Tensor WorkerModel::gradient(int parameter) const {
  const at::Tensor& leaf = store_.leaf(0, parameter);
  return leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
}

at::Tensor WorkerModel::value(int parameter) const {
  return store_.leaf(0, parameter).detach();
}

}  // namespace sdp
