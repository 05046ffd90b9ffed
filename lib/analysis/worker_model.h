#pragma once

// One worker of a plan with the gradients of a batch, as training computes them but without an engine.

#include <functional>
#include <memory>

#include "engine/parameter_store.h"
#include "experiment/spec/experiment_spec.h"
#include "feed/batch.h"
#include "model/model.h"
#include "subnet/plan.h"
#include "subnet/schedule.h"

namespace sdp {

/// Gives parameter i in the full model's shape, of any type.
using ValuesOf = std::function<at::Tensor(int parameter)>;

class WorkerModel {
 public:
  /// Holds the worker's values, in the spec's precision. The plan must outlive it.
  WorkerModel(const ExperimentSpec& spec, const SubnetPlan& plan, int worker, at::Device device,
              const ValuesOf& values);

  /// Forward and backward pass of one batch in place of the one before. BatchNorm normalises with the batch's
  /// statistics; nothing is dropped (dropout, stochastic depth): what is left is what the plan leaves out.
  void compute_gradients(const TensorBatch& batch);

  /// Of what the worker owns of a unit's piece of the parameter, flat; zeros where the loss does not depend
  /// on it.
  at::Tensor piece_gradient(int parameter, int unit) const {
    return store_.piece_gradient(0, parameter, unit);
  }
  /// Of all that the worker owns of the parameter, as it holds it.
  at::Tensor gradient(int parameter) const;
  /// Values of all that the worker owns of the parameter, as it holds it.
  at::Tensor value(int parameter) const;

 private:
  const TrainSpec train_;
  const Schedule schedule_;
  ParameterStore store_;
  std::unique_ptr<Model> model_;
};

/// The plan of one worker that owns everything, in tensors of the full model's shapes.
SubnetPlan full_model_plan(const ModelLayout& layout);

}  // namespace sdp
