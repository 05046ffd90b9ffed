#pragma once

// Measures of a run as numbers: the columns of `report`.

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "report/run.h"
#include "telemetry/fields.h"

namespace sdp {

/// The median; NaN values are ignored. NaN if there are no values.
double median(std::vector<double> values);

/// Models for which the tables show a measure; the CSV file has it for all.
enum class Models { kAll, kOfImages, kOfTokens };

struct Measure {
  std::string key;         ///< with the unit: a column of the CSV file
  std::string_view title;  ///< for tables; the unit is added by quantity
  Quantity quantity;
  std::function<double(const Run& run)> value;  ///< NaN: not known, or not yet
  Comparison comparison = Comparison::kNone;
  Detail detail = Detail::kTerminal;
  Models models = Models::kAll;
};

/// In the order of a table's columns.
std::span<const Measure> measures();

/// Tensors by kind at the peak of the process with the most tensor memory. Only training: lines whose steps
/// include an evaluation, which needs memory of its own, are ignored if there are others. All 0 if nothing is
/// known.
MemoryByKind peak_memory(const Run& run);

/// The same for all kinds together, and the peak memory of a whole process, evaluations included
/// (device/device.h). NaN if not known.
double peak_tensor_memory_bytes(const Run& run);
double peak_process_memory_bytes(const Run& run);

}  // namespace sdp
