#include "doctor/masked_mlp.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <string>

namespace sdp {
namespace {

/// By the library's names.
using Named = std::map<std::string, at::Tensor>;

/// 1 for each hidden unit of the branch that the worker owns: [H].
at::Tensor owned_hidden(const SubnetPlan& plan, int worker, int branch) {
  at::Tensor owned = at::zeros({plan.layout.branches[static_cast<size_t>(branch)].hidden_width}, at::kDouble);
  for (const Unit& unit : plan.units)
    if (unit.branch == branch && unit.owners.contains(worker))
      owned.narrow(0, unit.begin, unit.end - unit.begin).fill_(1);
  return owned;
}

/// 1 for each element of the parameter that the worker owns, in its shape or one that broadcasts to it.
at::Tensor owned_elements(const SubnetPlan& plan, int worker, const ParameterLayout& parameter) {
  if (!parameter.branch) return at::ones({1}, at::kDouble);
  const at::Tensor hidden = owned_hidden(plan, worker, *parameter.branch);
  if (plan.construction == Construction::kBlock) return hidden[0].reshape({1});  // one unit: the branch
  if (parameter.name.ends_with("mlp.0.weight")) return hidden.unsqueeze(1);      // rows of [H, W]
  if (parameter.name.ends_with("mlp.0.bias")) return hidden;
  if (parameter.name.ends_with("mlp.3.weight")) return hidden.unsqueeze(0);  // columns of [W, H]
  return at::ones({1}, at::kDouble);                                         // norms and the output bias
}

at::Tensor logits_of(const Named& values, const SubnetPlan& plan, int worker, const at::Tensor& images) {
  const auto value = [&](const std::string& name) { return values.at(name); };
  at::Tensor x = at::linear(images.flatten(1), value("stem.weight"), value("stem.bias"));
  for (size_t branch = 0; branch < plan.layout.branches.size(); ++branch) {
    const std::string name = "blocks." + std::to_string(branch);
    const at::Tensor normed =
        at::layer_norm(x, {x.size(1)}, value(name + ".norm.weight"), value(name + ".norm.bias"));
    at::Tensor hidden =
        at::relu(at::linear(normed, value(name + ".mlp.0.weight"), value(name + ".mlp.0.bias")));
    const at::Tensor owned = owned_hidden(plan, worker, static_cast<int>(branch));
    if (plan.masking == Masking::kForward) {
      if (plan.construction == Construction::kBlock && owned[0].item<double>() == 0) continue;
      hidden = hidden * owned;
    }
    x = x + at::linear(hidden, value(name + ".mlp.3.weight"), value(name + ".mlp.3.bias"));
  }
  return at::linear(x, value("head.weight"), value("head.bias"));
}

/// The worker's gradients of all parameters; zeros for those that the loss does not depend on.
std::vector<at::Tensor> gradients_of(const FullValues& values, const SubnetPlan& plan, int worker,
                                     const MlpBatch& batch) {
  const auto& parameters = plan.layout.parameters;
  Named leaves;
  for (size_t p = 0; p < parameters.size(); ++p)
    leaves[parameters[p].name] = values[p].clone().requires_grad_();
  at::cross_entropy_loss(logits_of(leaves, plan, worker, batch.images), batch.labels).backward();
  std::vector<at::Tensor> gradients;
  for (const ParameterLayout& parameter : parameters) {
    const at::Tensor& gradient = leaves.at(parameter.name).grad();
    gradients.push_back(gradient.defined() ? gradient : at::zeros(parameter.shape, at::kDouble));
  }
  return gradients;
}

}  // namespace

void train_masked_mlp(FullValues& values, const SubnetPlan& plan, const OptimizerSpec& sgd, int64_t steps,
                      const std::function<MlpBatch(int64_t step, int worker)>& batch_of) {
  const auto& parameters = plan.layout.parameters;
  const double factor = sgd.rule.as<SgdSpec>().momentum;
  std::vector<at::Tensor> momentum(parameters.size());
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<at::Tensor> sums, owners;
    for (const ParameterLayout& parameter : parameters) {
      sums.push_back(at::zeros(parameter.shape, at::kDouble));
      owners.push_back(at::zeros(parameter.shape, at::kDouble));
    }
    for (int worker = 0; worker < plan.workers; ++worker) {
      const std::vector<at::Tensor> gradients = gradients_of(values, plan, worker, batch_of(step, worker));
      for (size_t p = 0; p < parameters.size(); ++p) {
        const at::Tensor owned = owned_elements(plan, worker, parameters[p]);
        sums[p] += gradients[p] * owned;
        owners[p] += owned;
      }
    }
    const at::NoGradGuard no_grad;
    for (size_t p = 0; p < parameters.size(); ++p) {
      const at::Tensor gradient = sums[p] / owners[p] + sgd.weight_decay() * values[p];
      momentum[p] = momentum[p].defined() ? factor * momentum[p] + gradient : gradient;
      values[p] = values[p] - sgd.lr() * momentum[p];
    }
  }
}

}  // namespace sdp
