#include "analysis/analysis_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "text/table.h"

namespace sdp {
namespace {

/// Layers and units in numbers; NaN and -1 where there is none that counts.
struct Summary {
  double mean = std::nan("");  ///< over layers, of the mean over workers
  double lowest = std::nan("");
  int lowest_depth = -1;
  double first = std::nan("");
  double last = std::nan("");
  double largest_ratio = std::nan("");
  int largest_unit = -1;
  int beyond_bound = 0;  ///< units
};

Summary summary_of(const RegimeAnalysis& analysis) {
  Summary summary;
  const std::vector<LayerSimilarity> layers = summarize(analysis.similarity);
  summary.first = layers.front().mean;
  summary.last = layers.back().mean;
  double sum = 0;
  int counted = 0;
  for (const LayerSimilarity& layer : layers) {
    if (std::isnan(layer.mean)) continue;
    sum += layer.mean;
    ++counted;
    if (summary.lowest_depth >= 0 && layer.mean >= summary.lowest) continue;
    summary.lowest = layer.mean;
    summary.lowest_depth = layer.depth;
  }
  if (counted > 0) summary.mean = sum / counted;
  for (size_t u = 0; u < analysis.deviation.size(); ++u) {
    const double ratio = analysis.deviation[u].ratio();
    if (std::isnan(ratio)) continue;
    if (ratio > 1) ++summary.beyond_bound;
    if (summary.largest_unit >= 0 && ratio <= summary.largest_ratio) continue;
    summary.largest_ratio = ratio;
    summary.largest_unit = static_cast<int>(u);
  }
  return summary;
}

std::string layer_name(const SubnetPlan& plan, int depth) {
  return plan.layout.parameters[layers_of(plan.layout)[depth]].name;
}

std::string unit_name(const SubnetPlan& plan, int number) {
  const Unit& unit = plan.units[number];
  return fmt::format("{}[{}:{}]", plan.layout.branches[unit.branch].name, unit.begin, unit.end);
}

std::string text_of(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.3f}", value);
}

std::string table_of(const std::vector<RegimeAnalysis>& analyses) {
  TextTable table({"regime", "mean cosine", "lowest layer", "", "first layer", "last layer",
                   "largest deviation/bound", "of unit"});
  for (const RegimeAnalysis& analysis : analyses) {
    const Summary summary = summary_of(analysis);
    const SubnetPlan& plan = analysis.plan;
    table.add_row({method_name(analysis.regime), text_of(summary.mean), text_of(summary.lowest),
                   summary.lowest_depth < 0 ? "-" : layer_name(plan, summary.lowest_depth),
                   text_of(summary.first), text_of(summary.last), text_of(summary.largest_ratio),
                   summary.largest_unit < 0 ? "-" : unit_name(plan, summary.largest_unit)});
  }
  return table.str();
}

std::string in_words(const RegimeAnalysis& analysis) {
  const SubnetPlan& plan = analysis.plan;
  const Summary summary = summary_of(analysis);
  const std::string name = method_name(analysis.regime);
  if (plan.owners_per_unit == plan.workers)
    return fmt::format("{}: every worker owns everything, so there is nothing to compare.\n", name);
  if (plan.keeps_frozen_units())
    return fmt::format(
        "{}: a worker's gradients are the full model's on what it owns. The squared distance between their "
        "average "
        "over a unit's owners and that over all workers is at most {} of its bound.\n",
        name, text_of(summary.largest_ratio));
  return fmt::format(
      "{}: on the same batch, a subnetwork's gradient has a mean cosine of {} with the full model's. A "
      "worker "
      "without a unit has no gradient of it, so the average over owners is compared with the full model's "
      "gradients on the batches of all workers. The bound does not cover what forward masking changes: {} of "
      "{} "
      "units are beyond it.\n",
      name, text_of(summary.mean), summary.beyond_bound, plan.units.size());
}

}  // namespace

std::string describe(const std::vector<RegimeAnalysis>& analyses) {
  std::string text = table_of(analyses) + "\n";
  for (const RegimeAnalysis& analysis : analyses)
    text += in_words(analysis);
  const int workers = analyses.front().plan.workers;
  if (workers > 1)
    text += fmt::format("Of independent gradients, deviation/bound is 1/(n - 1) = {:.3f} on average.\n",
                        1.0 / (workers - 1));
  return text;
}

std::string similarity_csv(const std::vector<RegimeAnalysis>& analyses) {
  std::string text = "regime,layer,depth,worker,cosine,elements\n";
  for (const RegimeAnalysis& analysis : analyses)
    for (const LayerCosine& layer : analysis.similarity)
      text += fmt::format("{},{},{},{},{},{}\n", method_name(analysis.regime),
                          layer_name(analysis.plan, layer.depth), layer.depth, layer.worker, layer.cosine,
                          layer.elements);
  return text;
}

std::string deviation_csv(const std::vector<RegimeAnalysis>& analyses) {
  std::string text = "regime,unit,branch,begin,end,owners,deviation_squared,bound,ratio\n";
  for (const RegimeAnalysis& analysis : analyses) {
    for (size_t u = 0; u < analysis.deviation.size(); ++u) {
      const Unit& unit = analysis.plan.units[u];
      const Deviation& deviation = analysis.deviation[u];
      text += fmt::format("{},{},{},{},{},{},{},{},{}\n", method_name(analysis.regime), u,
                          analysis.plan.layout.branches[unit.branch].name, unit.begin, unit.end,
                          fmt::join(unit.owners, " "), deviation.squared, deviation.bound, deviation.ratio());
    }
  }
  return text;
}

}  // namespace sdp
