#include "analysis/analysis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "spec/table.h"

namespace sdp {
namespace {

/// Summary of layers and units; NaN and -1 if no layer or unit counts.
struct Summary {
  double lowest = std::nan("");
  int lowest_depth = -1;
  double first = std::nan("");
  double last = std::nan("");
  double largest_ratio = std::nan("");
  int largest_unit = -1;
  int beyond_bound = 0;  ///< number of units
  // Means over layers of the mean over workers.
  double norm = std::nan("");
  double full_norm = std::nan("");
};

double mean_over_layers(const RegimeAnalysis& analysis, Spread LayerGradients::*figure) {
  std::vector<double> means;
  for (const auto& [depth, mean] : means_over_workers(analysis.layers, figure))
    means.push_back(mean);
  return spread_of(means).mean;
}

Summary summary_of(const RegimeAnalysis& analysis) {
  Summary summary;
  const std::map<int, double> layers = means_over_workers(analysis.layers, &LayerGradients::cosine);
  summary.first = layers.begin()->second;
  summary.last = layers.rbegin()->second;
  summary.norm = mean_over_layers(analysis, &LayerGradients::norm);
  summary.full_norm = mean_over_layers(analysis, &LayerGradients::full_norm);
  for (const auto& [depth, mean] : layers) {
    if (std::isnan(mean) || (summary.lowest_depth >= 0 && mean >= summary.lowest)) continue;
    summary.lowest = mean;
    summary.lowest_depth = depth;
  }
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

/// With the standard deviation if there are several batches.
std::string text_of(const Spread& spread) {
  if (std::isnan(spread.deviation)) return text_of(spread.mean);
  return fmt::format("{:.3f} ± {:.3f}", spread.mean, spread.deviation);
}

std::string norm_text(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.3g}", value);
}

/// The regime, with its step if the analyses are of several steps.
std::string label_of(const RegimeAnalysis& analysis, const std::vector<RegimeAnalysis>& analyses) {
  const std::string name = method_name(analysis.regime);
  return analyses.front().step == analyses.back().step ? name
                                                       : fmt::format("{} at step {}", name, analysis.step);
}

std::string table_of(const std::vector<RegimeAnalysis>& analyses) {
  TextTable table({"regime", "mean cosine", "lowest layer", "", "first layer", "last layer",
                   "largest deviation/bound", "of unit", "gradient norm", "full model's"});
  for (const RegimeAnalysis& analysis : analyses) {
    const Summary summary = summary_of(analysis);
    const SubnetPlan& plan = analysis.plan;
    table.add_row({label_of(analysis, analyses), text_of(analysis.cosine), text_of(summary.lowest),
                   summary.lowest_depth < 0 ? "-" : layer_name(plan, summary.lowest_depth),
                   text_of(summary.first), text_of(summary.last), text_of(summary.largest_ratio),
                   summary.largest_unit < 0 ? "-" : unit_name(plan, summary.largest_unit),
                   norm_text(summary.norm), norm_text(summary.full_norm)});
  }
  return table.str();
}

std::string in_words(const RegimeAnalysis& analysis) {
  const SubnetPlan& plan = analysis.plan;
  const Summary summary = summary_of(analysis);
  const std::string name = method_name(analysis.regime);
  if (plan.owners_range().first == plan.workers)
    return fmt::format("{}: every worker owns all parameters, so there is nothing to compare.\n", name);
  if (!has_subnetworks(plan))
    return fmt::format(
        "{}: a worker's gradients equal the full model's on the units it owns. The squared distance between "
        "the "
        "average "
        "over a unit's owners and the average over all workers is at most {} times its bound.\n",
        name, text_of(summary.largest_ratio));
  return fmt::format(
      "{}: on the same batch, the mean cosine similarity of a subnetwork's gradient and the full model's is "
      "{}. A "
      "worker "
      "without a unit has no gradient for it, so the average over owners is compared with the full model's "
      "gradients on the batches of all workers. The bound does not cover what forward masking changes: {} of "
      "{} "
      "units exceed it.\n",
      name, text_of(analysis.cosine.mean), summary.beyond_bound, plan.units.size());
}

}  // namespace

std::string describe(const std::vector<RegimeAnalysis>& analyses) {
  std::string text = table_of(analyses) + "\n";
  for (const RegimeAnalysis& analysis : analyses)
    if (analysis.step == analyses.back().step) text += in_words(analysis);
  const int workers = analyses.front().plan.workers;
  if (workers > 1)
    text += fmt::format("For independent gradients, deviation/bound is 1/(n - 1) = {:.3f} on average.\n",
                        1.0 / (workers - 1));
  return text;
}

std::string similarity_csv(const std::vector<RegimeAnalysis>& analyses) {
  std::string text =
      "regime,layer,depth,worker,cosine,elements,step,cosine_std,norm,norm_std,"
      "full_norm,full_norm_std\n";
  for (const RegimeAnalysis& analysis : analyses)
    for (const LayerGradients& layer : analysis.layers)
      text +=
          fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", method_name(analysis.regime),
                      layer_name(analysis.plan, layer.depth), layer.depth, layer.worker, layer.cosine.mean,
                      layer.elements, analysis.step, layer.cosine.deviation, layer.norm.mean,
                      layer.norm.deviation, layer.full_norm.mean, layer.full_norm.deviation);
  return text;
}

std::string deviation_csv(const std::vector<RegimeAnalysis>& analyses) {
  std::string text = "regime,unit,branch,begin,end,owners,deviation_squared,bound,ratio,step\n";
  for (const RegimeAnalysis& analysis : analyses) {
    for (size_t u = 0; u < analysis.deviation.size(); ++u) {
      const Unit& unit = analysis.plan.units[u];
      const Deviation& deviation = analysis.deviation[u];
      text += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", method_name(analysis.regime), u,
                          analysis.plan.layout.branches[unit.branch].name, unit.begin, unit.end,
                          fmt::join(unit.owners, " "), deviation.squared, deviation.bound, deviation.ratio(),
                          analysis.step);
    }
  }
  return text;
}

std::string summary_csv(const std::vector<RegimeAnalysis>& analyses) {
  std::string text = "model,regime,step,cosine,cosine_std\n";
  for (const RegimeAnalysis& analysis : analyses)
    text += fmt::format("{},{},{},{},{}\n", analysis.plan.layout.name, method_name(analysis.regime),
                        analysis.step, analysis.cosine.mean, analysis.cosine.deviation);
  return text;
}

}  // namespace sdp
