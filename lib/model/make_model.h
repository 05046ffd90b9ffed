#pragma once

#include <memory>

#include "layers/model.h"
#include "layers/tensors.h"
#include "model/model_spec.h"
#include "subnet/plan.h"

namespace sdp {

/// The model that the spec names, with nothing bound.
std::unique_ptr<Model> make_model(const ModelSpec& spec);

/// The worker's subnetwork: the shared tensors are bound, and every branch of which the worker has a tensor.
/// In neuron construction this is every branch, because tensors that are not sliced are shared.
std::unique_ptr<Model> make_subnetwork(const ModelSpec& spec, const SubnetPlan& plan, int worker,
                                       const TensorSource& source);

}  // namespace sdp
