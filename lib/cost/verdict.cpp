#include "cost/verdict.h"

#include <utility>

namespace sdp {
namespace {

/// Of the methods that fit and are accepted, the first one of the least value; nullptr if there is none.
template <class Accepts, class Value>
const StepForecast* least_of(const std::vector<StepForecast>& methods, Accepts accepts, Value value) {
  const StepForecast* least = nullptr;
  for (const StepForecast& method : methods)
    if (method.fits && accepts(method) && (!least || value(method) < value(*least))) least = &method;
  return least;
}

std::string name_of(const StepForecast* method) {
  return method ? method->name : "";
}

}  // namespace

const StepForecast* best_of(const std::vector<StepForecast>& methods, bool (*accepts)(const StepForecast&)) {
  constexpr double kAlike = 1.05;
  const auto value = [](const StepForecast& method) { return std::pair(-method.coverage, method.step_ms); };
  const StepForecast* const fastest = least_of(methods, accepts, value);
  for (const StepForecast& method : methods)
    if (fastest && method.fits && accepts(method) && method.coverage == fastest->coverage &&
        method.step_ms <= kAlike * fastest->step_ms)
      return &method;
  return nullptr;
}

Verdict verdict_of(const std::vector<StepForecast>& methods) {
  const StepForecast& plan = methods.at(0);
  const StepForecast& ddp = methods.at(1);
  const auto is_here = [](const StepForecast& method) {
    return method.in_this_program && !method.has_local_steps;
  };
  const StepForecast* const recommended = best_of(methods);
  const auto ms = [](const StepForecast& method) { return method.equal_flops_ms(); };
  const StepForecast* const fastest = least_of(
      methods, [](const auto& method) { return !method.has_local_steps; }, ms);
  Verdict verdict{
      .recommended = name_of(recommended),
      .recommended_here = name_of(best_of(methods, is_here)),
      .fastest = name_of(fastest),
      .fastest_here = name_of(least_of(methods, is_here, ms)),
      .time_at_equal_flops = plan.equal_flops_ms() / ddp.equal_flops_ms(),
      .memory_share = static_cast<double>(plan.peak.total()) / static_cast<double>(ddp.peak.total())};
  for (const StepForecast& method : methods)
    if (method.fits) verdict.fit.push_back(method.name);
  if (fastest) verdict.fastest_over_recommended = fastest->equal_flops_ms() / recommended->equal_flops_ms();
  if (!plan.fits)
    verdict.change = name_of(best_of(
        methods, [](const auto& method) { return method.in_this_program && method.regime_file.empty(); }));
  return verdict;
}

}  // namespace sdp
