#include "analysis/similarity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace sdp {
namespace {

LayerSimilarity summary_of(int depth, const std::vector<double>& cosines) {
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
  // Each length by itself: its square may be too small for a product with another.
  const double lengths = std::sqrt(x.dot(x).item<double>()) * std::sqrt(y.dot(y).item<double>());
  return lengths == 0 ? std::numeric_limits<double>::quiet_NaN() : x.dot(y).item<double>() / lengths;
}

std::vector<LayerSimilarity> summarize(const std::vector<LayerCosine>& cosines) {
  std::map<int, std::vector<double>> by_depth;
  for (const LayerCosine& layer : cosines) {
    std::vector<double>& counted = by_depth[layer.depth];
    if (!std::isnan(layer.cosine)) counted.push_back(layer.cosine);
  }
  std::vector<LayerSimilarity> summaries;
  for (const auto& [depth, counted] : by_depth)
    summaries.push_back(summary_of(depth, counted));
  return summaries;
}

}  // namespace sdp
