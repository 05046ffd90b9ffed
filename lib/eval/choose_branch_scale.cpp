#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "eval/passes.h"

namespace sdp {
namespace {

// Batches on which branch scales are compared: more and more until the comparison is decided.
constexpr int64_t kFewestTriedBatches = 8;
constexpr int64_t kMostTriedBatches = 64;

/// Tries both branch scales, each with its own BatchNorm statistics, on the same batches.
BranchScaleTrial choose_branch_scale(const EvalInputs& inputs, FullModel& full_model, EvalTimes& times) {
  struct Candidate {
    double branch_scale;
    std::map<std::string, at::Tensor> statistics = {};
    EvalResults results = {};
  };
  std::array<Candidate, 2> candidates = {Candidate{1}, Candidate{inputs.experiment.plan.coverage()}};
  for (Candidate& candidate : candidates) {
    correct(inputs, full_model, candidate.branch_scale, times);
    for (const auto& [name, buffer] : full_model.buffers())
      candidate.statistics[name] = buffer.clone();
  }
  const auto use = [&](const Candidate& candidate) {
    full_model.set_branch_scale(candidate.branch_scale);
    full_model.buffers() = candidate.statistics;
  };
  BranchScaleTrial trial;
  for (int64_t batches = kFewestTriedBatches; batches <= kMostTriedBatches; batches *= 2) {
    const std::vector<int64_t> samples =
        evenly_spread(batches * *inputs.experiment.spec.eval.batch_size, inputs.train.size());
    for (Candidate& candidate : candidates) {
      use(candidate);
      candidate.results =
          run_full_model(inputs, full_model, "comparing branch scales", inputs.train, samples, times);
    }
    const auto& [none, survival] = candidates;
    const at::Tensor differences = survival.results.batch_losses - none.results.batch_losses;
    const auto count = static_cast<double>(differences.numel());
    trial = {.samples = static_cast<int64_t>(samples.size()),
             .loss_none = none.results.all.loss,
             .loss_survival = survival.results.all.loss,
             .standard_error = count > 1 ? differences.std().item<double>() / std::sqrt(count) : 0};
    if (trial.is_decided() || trial.samples == inputs.train.size()) break;
  }
  const bool is_survival = trial.is_decided() && trial.loss_survival < trial.loss_none;
  use(candidates[is_survival ? 1 : 0]);
  return trial;
}

}  // namespace

std::optional<double> fixed_branch_scale(const Experiment& experiment) {
  const SubnetPlan& plan = experiment.plan;
  const bool takes_scale =
      has_subnetworks(plan) && plan.branch_scales.empty() &&
      std::any_of(plan.layout.parameters.begin(), plan.layout.parameters.end(),
                  [&](const ParameterLayout& parameter) { return takes_branch_scale(plan, parameter); });
  const BranchScale wanted = experiment.spec.eval.branch_scale;
  if (!takes_scale || wanted == BranchScale::kNone) return 1;
  if (wanted == BranchScale::kAuto) return std::nullopt;
  return plan.coverage();
}

std::optional<BranchScaleTrial> correct(const EvalInputs& inputs, FullModel& full_model,
                                        std::optional<double> branch_scale, EvalTimes& times) {
  const at::NoGradGuard no_grad;
  if (!branch_scale) return choose_branch_scale(inputs, full_model, times);
  full_model.set_branch_scale(*branch_scale);
  if (batches_to_recalibrate(inputs.experiment) > 0) recalibrate(inputs, full_model, times);
  return std::nullopt;
}

}  // namespace sdp
