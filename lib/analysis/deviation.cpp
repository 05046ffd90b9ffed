#include "analysis/deviation.h"

#include <ATen/ATen.h>

#include <limits>
#include <stdexcept>
#include <utility>

#include "analysis/similarity.h"

namespace sdp {
namespace {

/// Sums of half-precision types use fp32.
at::Tensor in_sum_type(const at::Tensor& values) {
  return values.to(values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace

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
