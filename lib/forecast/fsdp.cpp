#include "forecast/fsdp.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "forecast/accounting.h"

namespace sdp {
namespace {

/// A unit's values, gradients and packed gradients, in bytes.
struct UnitBytes {
  int64_t values = 0;
  int64_t packed_gradients = 0;

  int64_t gradients() const { return values; }  // of the same type
  UnitBytes& operator+=(const UnitBytes& other) {
    values += other.values;
    packed_gradients += other.packed_gradients;
    return *this;
  }
};

/// By parameter: its unit, in order of depth.
std::vector<int> units_of(const ModelLayout& layout) {
  const std::vector<int> depths = depths_of(layout);
  size_t end = layout.parameters.size();  // of the parameters up to the last block's
  while (end > 0 && !layout.parameters[end - 1].branch)
    --end;
  constexpr int kBefore = -1;
  constexpr int kAfter = -2;
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
void set_whole(FsdpBytes& bytes, std::vector<UnitBytes> units, bool first_stays) {
  UnitBytes always;
  if (first_stays) {
    always = units.front();
    units.erase(units.begin());
  }
  int64_t most_values = 0;
  UnitBytes most;
  for (size_t u = 0; u < units.size(); ++u) {
    const int64_t next = u + 1 < units.size() ? units[u + 1].values : 0;
    most_values = std::max(most_values, units[u].values + next);
    most.values = std::max(most.values, units[u].values);
    most.packed_gradients = std::max(most.packed_gradients, units[u].packed_gradients);
  }
  bytes.gathered_weights = always.values + most_values;
  bytes.unit_gradients = always.gradients() + most.gradients();
  bytes.reduce_buffer = std::max(always.packed_gradients, most.packed_gradients);
}

}  // namespace

FsdpBytes fsdp_bytes(const ModelLayout& layout, const ExperimentSpec& spec, int processes) {
  const Precision precision = spec.train.precision;
  const auto moments = static_cast<int64_t>(spec.optimizer.state_names().size());
  const int64_t sum_bytes = bytes_of(sum_type(precision));
  const auto wire_type = schedule_options(spec, layout).reduce_type;
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
    bytes.gradients += share * bytes_of(type);
    bytes.optimizer += share * (moments + master) * sum_bytes;
    bytes.gather_sent += share * (processes - 1) * bytes_of(type);
    bytes.reduce_sent += share * (processes - 1) * wire_bytes;
    units[unit_of[p]] += {.values = parameter.elements() * bytes_of(type),
                          .packed_gradients = parameter.elements() * wire_bytes};
  }
  set_whole(bytes, std::move(units), has_tied_head(layout));
  return bytes;
}

}  // namespace sdp
