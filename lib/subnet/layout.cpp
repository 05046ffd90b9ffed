#include "subnet/layout.h"

#include <functional>
#include <numeric>
#include <stdexcept>

namespace sdp {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t ParameterLayout::elements() const {
  return product(shape);
}

int64_t BufferLayout::elements() const {
  return product(shape);
}

Flops& Flops::operator+=(const Flops& other) {
  forward += other.forward;
  weight_gradient += other.weight_gradient;
  input_gradient += other.input_gradient;
  frozen_recompute += other.frozen_recompute;
  return *this;
}

Flops Flops::operator-(const Flops& other) const {
  return {forward - other.forward, weight_gradient - other.weight_gradient,
          input_gradient - other.input_gradient, frozen_recompute - other.frozen_recompute};
}

Flops Flops::operator*(double factor) const {
  return {forward * factor, weight_gradient * factor, input_gradient * factor, frozen_recompute * factor};
}

int64_t ModelLayout::parameter_count() const {
  int64_t count = 0;
  for (const ParameterLayout& parameter : parameters)
    count += parameter.elements();
  return count;
}

int ModelLayout::parameter_index(const std::string& parameter_name) const {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name == parameter_name) return static_cast<int>(i);
  throw std::logic_error("no parameter " + parameter_name + " in layout " + name);
}

std::vector<int64_t> storage_order(size_t dimensions) {
  constexpr size_t kConvolution = 4;
  if (dimensions == kConvolution) return {0, 2, 3, 1};
  std::vector<int64_t> order(dimensions);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

ElementType element_type(const ParameterLayout& parameter, Precision precision) {
  const bool keep_fp32 = precision == Precision::kBf16 && parameter.role == ParameterRole::kNorm;
  return keep_fp32 ? ElementType::kF32 : compute_type(precision);
}

}  // namespace sdp
