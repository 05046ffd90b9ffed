#include "analysis/similarity.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace sdp {
double inner_product(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kDouble).dot(b.to(at::kDouble)).item<double>();
}

double norm_of(const at::Tensor& values) {
  return std::sqrt(inner_product(values, values));
}

double cosine_between(const at::Tensor& a, const at::Tensor& b) {
  // Multiply norms, not squared norms: the product of two squares may underflow.
  const double lengths = norm_of(a) * norm_of(b);
  return lengths == 0 ? std::numeric_limits<double>::quiet_NaN() : inner_product(a, b) / lengths;
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

std::map<int, double> means_over_workers(const std::vector<LayerGradients>& layers,
                                         Spread LayerGradients::*figure) {
  std::map<int, std::vector<double>> by_depth;
  for (const LayerGradients& layer : layers)
    by_depth[layer.depth].push_back((layer.*figure).mean);
  std::map<int, double> means;
  for (const auto& [depth, values] : by_depth)
    means[depth] = spread_of(values).mean;
  return means;
}

}  // namespace sdp
