#include "forecast/verdict.h"

#include <algorithm>

namespace sdp {
namespace {

using Accepts = bool (*)(const StepForecast&);

/// Of the methods that fit and are accepted, those of the highest coverage; of these the first one whose time
/// is within 5 % of the shortest, as the methods are in order of simplicity. nullptr if there is none.
const StepForecast* best_of(const std::vector<StepForecast>& methods, Accepts accepts) {
  constexpr double kAlike = 1.05;
  std::vector<const StepForecast*> candidates;
  for (const StepForecast& method : methods)
    if (method.fits && accepts(method)) candidates.push_back(&method);
  if (candidates.empty()) return nullptr;
  const auto by = [](double (*value)(const StepForecast&)) {
    return [value](const StepForecast* a, const StepForecast* b) { return value(*a) < value(*b); };
  };
  const double coverage = (*std::max_element(candidates.begin(), candidates.end(),
                                             by([](const StepForecast& m) { return m.coverage; })))
                              ->coverage;
  std::erase_if(candidates, [&](const StepForecast* method) { return method->coverage < coverage; });
  const double shortest_ms = (*std::min_element(candidates.begin(), candidates.end(),
                                                by([](const StepForecast& m) { return m.step_ms; })))
                                 ->step_ms;
  return *std::find_if(candidates.begin(), candidates.end(),
                       [&](const StepForecast* method) { return method->step_ms <= kAlike * shortest_ms; });
}

Decision decision_of(const StepForecast* recommended, const StepForecast* here) {
  if (!recommended) return Decision::kNothingFits;
  if (recommended->coverage < 1)
    return recommended->checkpoints ? Decision::kThisPlanCheckpointing : Decision::kThisPlan;
  return here && here->coverage == 1 ? Decision::kFullCoverage : Decision::kOtherProgram;
}

/// `checkpointing`: whether this plan fits with activation checkpointing.
std::vector<std::string> changes_of(const StepForecast& plan, const RunForecast& run, bool checkpointing) {
  if (plan.fits) return {};
  std::vector<std::string> changes;
  if (checkpointing) changes.emplace_back("train.checkpoint_activations: true");
  // The same global batch in more micro-batches.
  const int64_t samples = run.batch_size_per_worker * run.accumulate_steps;
  for (int64_t batch = std::min(plan.largest_batch, samples); batch > 0; --batch) {
    if (samples % batch != 0) continue;
    changes.push_back("train.batch_size_per_worker: " + std::to_string(batch) +
                      " with train.accumulate_steps: " + std::to_string(samples / batch));
    break;
  }
  if (changes.empty()) changes.emplace_back("a lower subnetwork.coverage");
  return changes;
}

}  // namespace

Verdict verdict_of(const std::vector<StepForecast>& methods, const RunForecast& run) {
  const StepForecast& plan = methods.at(0);
  const StepForecast& ddp = methods.at(1);
  Verdict verdict;
  verdict.time_at_equal_flops = plan.equal_flops_ms() / ddp.equal_flops_ms();
  verdict.memory_share = static_cast<double>(plan.peak.total()) / static_cast<double>(ddp.peak.total());
  const StepForecast* fastest = nullptr;
  bool checkpointing_fits = false;
  for (const StepForecast& method : methods) {
    if (!method.fits) continue;
    verdict.fit.push_back(method.name);
    if (!fastest || method.equal_flops_ms() < fastest->equal_flops_ms()) fastest = &method;
    if (method.checkpoints && method.coverage == plan.coverage && method.coverage < 1)
      checkpointing_fits = true;
  }
  verdict.changes = changes_of(plan, run, checkpointing_fits);
  const StepForecast* const recommended = best_of(methods, [](const StepForecast&) { return true; });
  const StepForecast* const here = best_of(methods, [](const StepForecast& m) { return m.in_this_program; });
  verdict.decision = decision_of(recommended, here);
  if (here) verdict.recommended_here = here->name;
  if (!recommended) return verdict;
  verdict.recommended = recommended->name;
  verdict.fastest = fastest->name;
  verdict.fastest_over_recommended = fastest->equal_flops_ms() / recommended->equal_flops_ms();
  return verdict;
}

}  // namespace sdp
