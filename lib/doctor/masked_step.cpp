#include "doctor/checks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>

#include "cost/layouts.h"
#include "cost/make_experiment.h"
#include "engine/engine.h"
#include "engine/train_step.h"
#include "layers/tensors.h"
#include "optim/sgd.h"

namespace sdp {
namespace {

constexpr int64_t kBatch = 8;

/// The worker's batch: the same on every device and in every world, as it is drawn on the CPU.
TensorBatch batch_of(const ExperimentSpec& spec, int worker, at::Device device) {
  at::Generator noise = at::detail::createCPUGenerator(static_cast<uint64_t>(worker));
  const int64_t side = spec.model.image_size();
  const at::Tensor images =
      at::randn({kBatch, spec.model.image_channels(), side, side}, noise, at::TensorOptions(at::kDouble));
  return {.input = images.to(scalar_type(compute_type(spec.train.precision))).to(device),
          .labels = at::randint(spec.model.num_classes(), {kBatch}, noise, at::kLong).to(device)};
}

FullValues initial_values(const ExperimentSpec& spec) {
  FullValues values;
  for (const ParameterLayout& parameter : structure_of(spec.model).parameters)
    values.push_back(draw_parameter(parameter, static_cast<uint64_t>(spec.seed)).to(at::kDouble));
  return values;
}

using Named = std::map<std::string, at::Tensor>;

at::Tensor logits_of(const Named& values, const SubnetPlan& plan, int worker, const at::Tensor& images) {
  at::Tensor x = at::linear(images.flatten(1), values.at("stem.weight"), values.at("stem.bias"));
  for (size_t branch = 0; branch < plan.layout.branches.size(); ++branch) {
    const std::string name = fmt::format("blocks.{}.", branch);
    const auto value = [&](const char* rest) { return values.at(name + rest); };
    at::Tensor owned = at::zeros({plan.layout.branches[branch].hidden_width}, at::kDouble);
    for (const Unit& unit : plan.units)
      if (unit.branch == static_cast<int>(branch) && unit.owners.contains(worker))
        owned.narrow(0, unit.begin, unit.end - unit.begin).fill_(1);
    const at::Tensor normed = at::layer_norm(x, {x.size(1)}, value("norm.weight"), value("norm.bias"));
    const at::Tensor hidden = at::relu(at::linear(normed, value("mlp.0.weight"), value("mlp.0.bias")));
    x = x + at::linear(hidden * owned, value("mlp.3.weight"), value("mlp.3.bias"));
  }
  return at::linear(x, values.at("head.weight"), values.at("head.bias"));
}

}  // namespace

ExperimentSpec masked_step_spec(Precision precision, int processes) {
  ExperimentSpec spec;
  spec.seed = 5;
  spec.model = tiny_model("mlp");
  int64_t workers = processes;
  while (workers < 4 || workers % 2 != 0)
    workers += processes;
  spec.subnetwork.workers = workers;
  spec.subnetwork.coverage.text = "1/2";
  spec.subnetwork.construction = Construction::kNeuron;
  spec.subnetwork.slices_per_branch = 2;
  spec.subnetwork.assignment = Assignment::kRandom;
  spec.optimizer.rule = SgdSpec{.lr = 0.01};
  spec.train.precision = precision;
  spec.train.batch_size_per_worker = kBatch;
  spec.train.bucket_megabytes = 0.02;  // small, for several exchanges
  return spec;
}

FullValues oracle_values(const ExperimentSpec& fp64_spec) {
  const SubnetPlan plan =
      make_plan(layout_of(fp64_spec.model), fp64_spec.subnetwork, static_cast<uint64_t>(fp64_spec.seed));
  const auto& parameters = plan.layout.parameters;
  FullValues values = initial_values(fp64_spec);
  Named leaves;
  for (size_t p = 0; p < parameters.size(); ++p)
    leaves[parameters[p].name] = values[p].clone().requires_grad_();
  for (int worker = 0; worker < plan.workers; ++worker) {  // autograd adds the gradients up
    const TensorBatch batch = batch_of(fp64_spec, worker, at::kCPU);
    at::cross_entropy_loss(logits_of(leaves, plan, worker, batch.input), batch.labels).backward();
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    const std::string& name = parameters[p].name;
    const bool is_hidden = name.find(".mlp.0.") != std::string::npos || name.ends_with(".mlp.3.weight");
    const at::Tensor mean = leaves.at(name).grad() / (is_hidden ? *plan.owners_per_unit() : plan.workers);
    values[p] -= fp64_spec.optimizer.lr() * (mean + fp64_spec.optimizer.weight_decay() * values[p]);
  }
  return values;
}

double step_difference(const ExperimentSpec& spec, const FullValues& expected, Communicator& comm) {
  const Experiment experiment = make_experiment(spec, comm.size());
  const SubnetPlan& plan = experiment.plan;
  Engine engine(plan, experiment.exchanges, spec.optimizer, comm);
  engine.initialize(static_cast<uint64_t>(spec.seed));
  TrainStep train_step(experiment, engine, comm);
  size_t slot = 0;
  train_step.run(/*step=*/0, spec.optimizer.lr(),
                 [&] { return batch_of(spec, engine.store().slots()[slot++].worker, comm.device()); });
  const at::NoGradGuard no_grad;
  const FullValues initial = initial_values(spec);
  const at::Tensor squares = at::zeros({2}, at::kDouble);  // of the difference, and of the change
  for (const StateRange& range : engine.owned_state()) {
    if (range.kind != "value") continue;
    const auto p = static_cast<size_t>(range.parameter);
    const auto part_of = [&](const at::Tensor& full) {
      const ParameterLayout& parameter = plan.layout.parameters[p];
      return slice_view(full, parameter.slice, plan, plan.units_of(parameter), range.unit)
          .reshape({-1})
          .narrow(0, range.begin, range.end - range.begin);
    };
    const at::Tensor right = part_of(expected[p]);
    squares[0] += (range.values.to(right.options()) - right).square().sum();
    squares[1] += (right - part_of(initial[p])).square().sum();
  }
  const at::Tensor sums = squares.to(comm.device());
  comm.all_reduce_sum(sums);
  return (sums[0] / sums[1]).sqrt().item<double>();
}

Finding check_masked_step(const FullValues& expected, Communicator& comm) {
  constexpr const char* kCheck = "masked step";
  std::string found, wrong;
  for (const auto& [precision, tolerance] : {std::pair{Precision::kFp64, 1e-9}, {Precision::kBf16, 0.25}}) {
    const double difference = step_difference(masked_step_spec(precision, comm.size()), expected, comm);
    found += fmt::format("{}{} {:.1g}", found.empty() ? "" : ", ", name_of(precision), difference);
    if (!(difference <= tolerance))  // also if it is not-a-number
      wrong += fmt::format("; in {} at most {:.1g} passes", name_of(precision), tolerance);
  }
  found = "relative difference from plain code on the CPU: " + found;
  if (wrong.empty()) return pass(kCheck, found);
  return failed(kCheck, found + wrong,
                "This device, or the libraries on it, compute wrong results. Run with --device cpu and with "
                "--nproc 1 to find out which; CUDA_VISIBLE_DEVICES selects another GPU.");
}

}  // namespace sdp
