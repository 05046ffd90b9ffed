#include "analysis/figures.h"

#include <fmt/format.h>

#include <utility>

namespace sdp {
namespace {

std::string title_of(const std::string& what, const SubnetPlan& plan) {
  return fmt::format("{}, {}: {} workers, {} owners a unit", what, plan.layout.name, plan.workers,
                     plan.owners_per_unit);
}

Series series_of(const RegimeAnalysis& analysis) {
  return {.name = method_name(analysis.regime), .has_markers = true};
}

}  // namespace

Figure similarity_figure(const std::vector<RegimeAnalysis>& analyses) {
  const SubnetPlan& plan = analyses.front().plan;
  Figure figure{.title = title_of("Gradients of subnetworks and of the full model", plan),
                .y_label = "cosine similarity"};
  for (const int layer : layers_of(plan.layout))
    figure.x_names.push_back(plan.layout.parameters[layer].name);
  for (const RegimeAnalysis& analysis : analyses) {
    Series series = series_of(analysis);
    for (const LayerSimilarity& layer : summarize(analysis.similarity)) {
      series.x.push_back(layer.depth);
      series.y.push_back(layer.mean);
      series.y_error.push_back(layer.deviation);
    }
    figure.series.push_back(std::move(series));
  }
  return figure;
}

Figure deviation_figure(const std::vector<RegimeAnalysis>& analyses) {
  const SubnetPlan& plan = analyses.front().plan;
  Figure figure{.title = title_of("Deviation of averaged gradients", plan),
                .y_label = "squared deviation / bound",
                .log_y = true};
  for (const BranchLayout& branch : plan.layout.branches)
    figure.x_names.push_back(branch.name);
  for (const RegimeAnalysis& analysis : analyses) {
    Series series = series_of(analysis);
    for (size_t u = 0; u < analysis.deviation.size(); ++u) {
      const Unit& unit = analysis.plan.units[u];
      const auto width = static_cast<double>(plan.layout.branches[unit.branch].hidden_width);
      const double middle = static_cast<double>(unit.begin + unit.end) / 2 / width;
      // Slices take four fifths of the way from one branch to the next.
      series.x.push_back(unit.branch + 0.8 * (middle - 0.5));
      series.y.push_back(analysis.deviation[u].ratio());
    }
    figure.series.push_back(std::move(series));
  }
  const double last = static_cast<double>(plan.layout.branches.size()) - 1;
  figure.series.push_back({.name = "bound", .x = {0, last}, .y = {1, 1}});
  return figure;
}

}  // namespace sdp
