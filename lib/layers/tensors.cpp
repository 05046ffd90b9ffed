#include "layers/tensors.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <xxhash.h>

#include <algorithm>
#include <stdexcept>

namespace sdp {
namespace {

int64_t hidden_of(const SubnetPlan& plan, const std::vector<int>& units) {
  int64_t hidden = 0;
  for (int unit : units)
    hidden += plan.units[unit].end - plan.units[unit].begin;
  return hidden;
}

at::Tensor in_storage_order(const at::Tensor& tensor) {
  const auto dimensions = static_cast<size_t>(tensor.dim());
  if (storage_format(dimensions) == at::MemoryFormat::Contiguous) return tensor;
  return tensor.permute(storage_order(dimensions));
}

/// View of the hidden range [begin, end) of a tensor in storage order that holds `hidden` hidden units. Its
/// sliced dimension is split in two, [.., blocks, (end - begin) * elements_per_hidden, ..], which is the
/// order of a slice's elements.
at::Tensor view_of_hidden(const at::Tensor& tensor, const SliceRule& rule, int64_t hidden, int64_t begin,
                          int64_t end) {
  const std::vector<int64_t> order = storage_order(static_cast<size_t>(tensor.dim()));
  const int64_t dim = std::ranges::find(order, rule.dim) - order.begin();
  const int64_t each = rule.elements_per_hidden;
  return tensor.unflatten(dim, at::IntArrayRef({rule.blocks, hidden * each}))
      .narrow(dim + 1, begin * each, (end - begin) * each);
}

}  // namespace

at::ScalarType scalar_type(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return at::kDouble;
    case ElementType::kF32:
      return at::kFloat;
    case ElementType::kBf16:
      return at::kBFloat16;
  }
  throw std::logic_error("unknown element type");
}

at::Tensor draw_parameter(const ParameterLayout& parameter, uint64_t seed) {
  if (parameter.own_init) return parameter.own_init->draw(parameter, seed);
  at::Tensor values = at::empty(parameter.shape, at::kFloat);
  const uint64_t own_seed = XXH3_64bits_withSeed(parameter.name.data(), parameter.name.size(), seed);
  at::Generator generator = at::detail::createCPUGenerator(own_seed);
  switch (parameter.init.kind) {
    case Initializer::Kind::kConstant:
      return values.fill_(parameter.init.scale);
    case Initializer::Kind::kNormal:
      return values.normal_(0, parameter.init.scale, generator);
    case Initializer::Kind::kUniform:
      return values.uniform_(-parameter.init.scale, parameter.init.scale, generator);
  }
  throw std::logic_error("unknown initializer");
}

bool is_sliced(const std::optional<SliceRule>& rule, const SubnetPlan& plan, int unit) {
  return rule && unit != kSharedUnit && plan.construction == Construction::kNeuron;
}

std::vector<at::Tensor> slice_views(const at::Tensor& tensor, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units) {
  const at::Tensor stored = in_storage_order(tensor);
  if (!is_sliced(rule, plan, units.front())) return {stored};
  const int64_t hidden = hidden_of(plan, units);
  std::vector<at::Tensor> views;
  int64_t begin = 0;
  for (int unit : units) {
    const int64_t width = plan.units[unit].end - plan.units[unit].begin;
    views.push_back(view_of_hidden(stored, *rule, hidden, begin, begin + width));
    begin += width;
  }
  return views;
}

at::Tensor slice_view(const at::Tensor& tensor, const std::optional<SliceRule>& rule, const SubnetPlan& plan,
                      const std::vector<int>& units, int unit) {
  const auto found = std::ranges::find(units, unit);
  if (found == units.end()) throw std::logic_error("the tensor does not hold this unit");
  return slice_views(tensor, rule, plan, units).at(static_cast<size_t>(found - units.begin()));
}

std::vector<int64_t> shape_of_units(const std::vector<int64_t>& full, const std::optional<SliceRule>& rule,
                                    const SubnetPlan& plan, const std::vector<int>& units) {
  if (!is_sliced(rule, plan, units.front())) return full;
  const int64_t full_hidden = plan.layout.branches[plan.units[units.front()].branch].hidden_width;
  std::vector<int64_t> shape = full;
  int64_t& size = shape[static_cast<size_t>(rule->dim)];
  size = size / full_hidden * hidden_of(plan, units);
  return shape;
}

at::MemoryFormat storage_format(size_t dimensions) {
  const std::vector<int64_t> order = storage_order(dimensions);
  return std::ranges::is_sorted(order) ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
}

}  // namespace sdp
