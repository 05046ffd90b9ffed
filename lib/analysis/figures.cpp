#include "analysis/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "analysis/analysis_text.h"

namespace sdp {
namespace {

std::string title_of(const std::string& what, const SubnetPlan& plan) {
  return fmt::format("{}, {}: {} workers, {} owners per unit", what, plan.layout.name, plan.workers,
                     plan.owners_per_unit);
}

/// A figure over all layers with one line per analysis.
Figure layer_figure(const std::vector<RegimeAnalysis>& analyses, Spread LayerGradients::*what) {
  const SubnetPlan& plan = analyses.front().plan;
  Figure figure;
  for (const int layer : layers_of(plan.layout))
    figure.x_names.push_back(plan.layout.parameters[layer].name);
  for (const RegimeAnalysis& analysis : analyses) {
    Series series{.name = label_of(analysis, analyses), .has_markers = true};
    for (const LayerSummary& layer : summarize(analysis.layers, what)) {
      series.x.push_back(layer.depth);
      series.y.push_back(layer.mean);
      series.y_error.push_back(layer.deviation);
    }
    figure.series.push_back(std::move(series));
  }
  return figure;
}

}  // namespace

Figure similarity_figure(const std::vector<RegimeAnalysis>& analyses) {
  Figure figure = layer_figure(analyses, &LayerGradients::cosine);
  figure.title = title_of("Gradients of subnetworks and of the full model", analyses.front().plan);
  figure.y_label = "cosine similarity";
  return figure;
}

Figure norm_figure(const std::vector<RegimeAnalysis>& analyses) {
  Figure figure = layer_figure(analyses, &LayerGradients::norm);
  figure.title = title_of("Gradients of subnetworks", analyses.front().plan);
  figure.y_label = "gradient norm of the parameters that a worker owns";
  figure.log_y = true;
  for (Series& series : figure.series)
    series.y_error.clear();
  return figure;
}

Figure training_figure(const std::vector<RegimeAnalysis>& analyses) {
  Figure figure{.title = title_of("Gradients of subnetworks and of the full model", analyses.front().plan),
                .x_label = "step",
                .y_label = "cosine similarity, mean over layers"};
  for (const RegimeAnalysis& analysis : analyses) {
    const std::string name = method_name(analysis.regime);
    const auto same = std::find_if(figure.series.begin(), figure.series.end(),
                                   [&](const Series& series) { return series.name == name; });
    Series& series = same == figure.series.end()
                         ? figure.series.emplace_back(Series{.name = name, .has_markers = true})
                         : *same;
    series.x.push_back(static_cast<double>(analysis.step));
    series.y.push_back(analysis.cosine.mean);
    series.y_error.push_back(analysis.cosine.deviation);
  }
  for (Series& series : figure.series)
    if (std::none_of(series.y_error.begin(), series.y_error.end(), [](double x) { return std::isfinite(x); }))
      series.y_error.clear();  // a single batch: no band in the legend
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
    Series series{.name = label_of(analysis, analyses), .has_markers = true};
    for (size_t u = 0; u < analysis.deviation.size(); ++u) {
      const Unit& unit = analysis.plan.units[u];
      const auto width = static_cast<double>(plan.layout.branches[unit.branch].hidden_width);
      const double middle = static_cast<double>(unit.begin + unit.end) / 2 / width;
      // Slices take four fifths of the space between two branches.
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
