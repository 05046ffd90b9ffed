#pragma once

// One worker's model with the gradients of a batch, computed as in training but without an engine.

#include <functional>
#include <memory>

#include "data/device_loader.h"
#include "engine/parameter_store.h"
#include "experiment/experiment_spec.h"
#include "layers/model.h"
#include "subnet/exchange_plan.h"
#include "subnet/plan.h"

namespace sdp {

/// Returns parameter i in the full model's shape, of any type.
using ValuesOf = std::function<at::Tensor(int parameter)>;

class WorkerModel {
 public:
  /// Loads the worker's parameters in the spec's precision. The plan must outlive the object.
  WorkerModel(const ExperimentSpec& spec, const SubnetPlan& plan, int worker, at::Device device,
              const ValuesOf& values);

  /// Forward and backward pass of one batch; replaces the previous gradients. BatchNorm uses the batch's
  /// statistics. There is no dropout and no stochastic depth, so that only the plan removes parts of the
  /// model.
  void compute_gradients(const TensorBatch& batch);

  /// Gradient of the part of the unit's parameter that the worker owns, flat; zeros if the loss does not
  /// depend on it.
  at::Tensor slice_gradient(int parameter, int unit) const {
    return store_.flat_gradient(0, parameter, unit);
  }
  /// Gradient of everything that the worker owns of the parameter, in the worker's shape.
  at::Tensor gradient(int parameter) const;
  /// Everything that the worker owns of the parameter, in the worker's shape.
  at::Tensor value(int parameter) const;

 private:
  const TrainSpec train_;
  const SubnetPlan& plan_;
  const ExchangePlan exchanges_;
  ParameterStore store_;
  std::unique_ptr<Model> model_;
};

}  // namespace sdp
