#include "forecast/verdict.h"

#include <algorithm>

namespace sdp {
namespace {

bool is_here(const StepForecast& method) {
  return method.in_this_program;
}

/// The method that fits with the least time at equal FLOPs; nullptr if there is none.
const StepForecast* fastest_of(const std::vector<StepForecast>& methods, bool only_here) {
  const StepForecast* fastest = nullptr;
  for (const StepForecast& method : methods)
    if (method.fits && (is_here(method) || !only_here) &&
        (!fastest || method.equal_flops_ms() < fastest->equal_flops_ms()))
      fastest = &method;
  return fastest;
}

std::string name_of(const StepForecast* method) {
  return method ? method->name : "";
}

}  // namespace

const StepForecast* best_of(const std::vector<StepForecast>& methods, bool (*accepts)(const StepForecast&)) {
  constexpr double kAlike = 1.05;
  double coverage = 0;
  for (const StepForecast& method : methods)
    if (method.fits && accepts(method)) coverage = std::max(coverage, method.coverage);
  std::vector<const StepForecast*> candidates;
  for (const StepForecast& method : methods)
    if (method.fits && accepts(method) && method.coverage == coverage) candidates.push_back(&method);
  if (candidates.empty()) return nullptr;
  const auto is_faster = [](const auto* a, const auto* b) { return a->step_ms < b->step_ms; };
  const double shortest_ms = (*std::min_element(candidates.begin(), candidates.end(), is_faster))->step_ms;
  return *std::find_if(candidates.begin(), candidates.end(),
                       [&](const auto* method) { return method->step_ms <= kAlike * shortest_ms; });
}

Verdict verdict_of(const std::vector<StepForecast>& methods) {
  const StepForecast& plan = methods.at(0);
  const StepForecast& ddp = methods.at(1);
  const StepForecast* const recommended = best_of(methods);
  const StepForecast* const fastest = fastest_of(methods, /*only_here=*/false);
  Verdict verdict{
      .fit = {},
      .recommended = name_of(recommended),
      .recommended_here = name_of(best_of(methods, is_here)),
      .fastest = name_of(fastest),
      .fastest_here = name_of(fastest_of(methods, /*only_here=*/true)),
      .change = {},
      .time_at_equal_flops = plan.equal_flops_ms() / ddp.equal_flops_ms(),
      .memory_share = static_cast<double>(plan.peak.total()) / static_cast<double>(ddp.peak.total())};
  for (const StepForecast& method : methods)
    if (method.fits) verdict.fit.push_back(method.name);
  if (fastest) verdict.fastest_over_recommended = fastest->equal_flops_ms() / recommended->equal_flops_ms();
  if (!plan.fits)
    verdict.change = name_of(
        best_of(methods, [](const auto& method) { return is_here(method) && method.regime_file.empty(); }));
  return verdict;
}

}  // namespace sdp
