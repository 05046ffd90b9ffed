#include "analysis/gradients.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace sdp {
namespace {

/// Sums of half-precision types use fp32.
at::Tensor in_sum_type(const at::Tensor& values) {
  return values.to(values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace

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

double Deviation::ratio() const {
  return bound == 0 ? std::numeric_limits<double>::quiet_NaN() : squared / bound;
}

DeviationSum::DeviationSum(MemberSet owners, int workers) : owners_(std::move(owners)), workers_(workers) {}

void DeviationSum::add(const at::Tensor& gradient, const at::Tensor& owned) {
  if (added_ == workers_) throw std::logic_error("every worker's gradient was added");
  if (added_ == 0) {
    mean_ = at::zeros_like(in_sum_type(gradient));
    owners_sum_ = at::zeros_like(mean_);
  }
  const bool owns = owners_.contains(added_++);
  const at::Tensor values = in_sum_type(gradient);
  const at::Tensor change = values - mean_;
  mean_.add_(change, 1.0 / added_);
  spread_ += inner_product(change, values - mean_);
  if (owns) owners_sum_.add_(in_sum_type(owned));
}

Deviation DeviationSum::result() const {
  if (added_ != workers_) throw std::logic_error("a worker's gradient is missing");
  const auto owners = static_cast<double>(owners_.size());
  const at::Tensor difference = owners_sum_ / owners - mean_;
  return {.squared = inner_product(difference, difference), .bound = (1 / owners - 1.0 / workers_) * spread_};
}

}  // namespace sdp
