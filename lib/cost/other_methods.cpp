#include "cost/other_methods.h"

#include <algorithm>
#include <vector>

#include "cost/make_experiment.h"

namespace sdp {
namespace {

/// A unit's values and packed gradients, in bytes. Its gradients have the values' type.
struct UnitBytes {
  int64_t values = 0;
  int64_t packed_gradients = 0;
};

/// By parameter: its unit, in order of depth.
std::vector<int> units_of(const ModelLayout& layout) {
  const std::vector<int> depths = depths_of(layout);
  size_t end = layout.parameters.size();  // of the parameters up to the last block's
  while (end > 0 && !layout.parameters[end - 1].branch)
    --end;
  constexpr int kBefore = -1, kAfter = -2;
  std::vector<int> units;
  int latest = 0;  // block
  for (size_t p = 0; p < depths.size(); ++p) {
    const int block = p >= end ? kAfter : depths[p] < 0 ? kBefore : layout.branches[depths[p]].block;
    units.push_back(units.empty() ? 0 : units.back() + (block == latest ? 0 : 1));
    latest = block;
  }
  return units;
}

/// Whether the first unit's embeddings are the head as well: no weight follows the branches.
bool has_tied_head(const ModelLayout& layout) {
  const auto last = std::find_if(
      layout.parameters.rbegin(), layout.parameters.rend(),
      [](const auto& parameter) { return parameter.branch || parameter.role == ParameterRole::kWeight; });
  return last != layout.parameters.rend() && last->branch;
}

/// Sets what is whole at a time. `first_stays`: the first unit is, throughout the pass.
void set_whole(FsdpBytes& bytes, const std::vector<UnitBytes>& units, bool first_stays) {
  const UnitBytes always = first_stays ? units.front() : UnitBytes{};
  bytes.gathered_weights = bytes.unit_gradients = always.values;
  bytes.reduce_buffer = always.packed_gradients;
  for (size_t u = first_stays ? 1 : 0; u < units.size(); ++u) {
    const int64_t one = always.values + units[u].values;
    const int64_t next = u + 1 < units.size() ? units[u + 1].values : 0;
    bytes.gathered_weights = std::max(bytes.gathered_weights, one + next);
    bytes.unit_gradients = std::max(bytes.unit_gradients, one);
    bytes.reduce_buffer = std::max(bytes.reduce_buffer, units[u].packed_gradients);
  }
}

}  // namespace

FsdpBytes fsdp_bytes(const ModelLayout& layout, const ExperimentSpec& spec, int processes) {
  const Precision precision = spec.train.precision;
  const auto moments = static_cast<int64_t>(spec.optimizer.state_names().size());
  const int64_t sum_bytes = bytes_of(sum_type(precision));
  const auto wire_type = exchange_options(spec, layout).reduce_type;
  const std::vector<int> unit_of = units_of(layout);
  std::vector<UnitBytes> units(unit_of.empty() ? 0 : static_cast<size_t>(unit_of.back()) + 1);
  FsdpBytes bytes{.units = static_cast<int64_t>(units.size())};
  for (size_t p = 0; p < layout.parameters.size(); ++p) {
    const ParameterLayout& parameter = layout.parameters[p];
    const ElementType type = element_type(parameter, precision);
    const int64_t wire_bytes = bytes_of(wire_type.value_or(type));
    const int64_t master = has_master_values(type, precision) ? 1 : 0;
    const int64_t rows = parameter.shape.front();
    const int64_t share = (rows + processes - 1) / processes * (parameter.elements() / rows);
    bytes.weights += share * bytes_of(type);
    bytes.optimizer += share * (moments + master) * sum_bytes;
    bytes.gather_sent += share * (processes - 1) * bytes_of(type);
    bytes.reduce_sent += share * (processes - 1) * wire_bytes;
    units[unit_of[p]].values += parameter.elements() * bytes_of(type);
    units[unit_of[p]].packed_gradients += parameter.elements() * wire_bytes;
  }
  set_whole(bytes, units, has_tied_head(layout));
  return bytes;
}

}  // namespace sdp
