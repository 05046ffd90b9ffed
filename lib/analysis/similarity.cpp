#include "analysis/similarity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace sdp {
namespace {

LayerSummary summary_of(int depth, const std::vector<double>& cosines) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (cosines.empty()) return {.depth = depth, .mean = kNone, .min = kNone, .max = kNone, .deviation = kNone};
  const auto count = static_cast<double>(cosines.size());
  double sum = 0;
  for (double cosine : cosines)
    sum += cosine;
  double squares = 0;
  for (double cosine : cosines)
    squares += (cosine - sum / count) * (cosine - sum / count);
  const auto [least, most] = std::minmax_element(cosines.begin(), cosines.end());
  return {.depth = depth,
          .mean = sum / count,
          .min = *least,
          .max = *most,
          .deviation = std::sqrt(squares / count)};
}

}  // namespace

double cosine_between(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble);
  const at::Tensor y = b.to(at::kDouble);
  // Multiply norms, not squared norms: the product of two squares may underflow.
  const double lengths = std::sqrt(x.dot(x).item<double>()) * std::sqrt(y.dot(y).item<double>());
  return lengths == 0 ? std::numeric_limits<double>::quiet_NaN() : x.dot(y).item<double>() / lengths;
}

Spread spread_of(const std::vector<double>& values) {
  double sum = 0;
  double count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  Spread result;
  if (count == 0) return result;
  result.mean = sum / count;
  double squares = 0;
  for (const double value : values)
    if (!std::isnan(value)) squares += (value - result.mean) * (value - result.mean);
  if (count > 1) result.deviation = std::sqrt(squares / (count - 1));
  return result;
}

std::vector<LayerSummary> summarize(const std::vector<LayerGradients>& layers,
                                    Spread LayerGradients::*figure) {
  std::map<int, std::vector<double>> by_depth;
  for (const LayerGradients& layer : layers) {
    std::vector<double>& counted = by_depth[layer.depth];
    if (!std::isnan((layer.*figure).mean)) counted.push_back((layer.*figure).mean);
  }
  std::vector<LayerSummary> summaries;
  for (const auto& [depth, counted] : by_depth)
    summaries.push_back(summary_of(depth, counted));
  return summaries;
}

}  // namespace sdp
