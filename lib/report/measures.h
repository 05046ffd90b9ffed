#pragma once

// What is measured of a run, as numbers: the columns of `report`.

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "report/run.h"
#include "telemetry/fields.h"

namespace sdp {

/// The middle value, or the mean of the middle two; NaN values are left out. NaN of none.
double median(std::vector<double> values);

/// Models whose tables show a measure; the file has it for others too.
enum class Models { kAll, kOfImages, kOfTokens };

struct Measure {
  std::string key;         ///< with the unit: a column of the CSV
  std::string_view title;  ///< for people; the unit is added by quantity
  Quantity quantity;
  std::function<double(const Run& run)> value;  ///< NaN: not known (yet)
  Comparison comparison = Comparison::kNone;
  Detail detail = Detail::kTerminal;
  Models models = Models::kAll;
};

/// In the order of a table's columns.
std::span<const Measure> measures();

/// Tensors of the process that held most at its peak, by kind. Of training: lines of the metrics in whose
/// steps an evaluation fell, which needs memory of its own, are left out where there are others. All 0 where
/// nothing is known.
MemoryByKind peak_memory(const Run& run);

/// The same, all kinds together, and the most that a whole process took, evaluations included
/// (device/device.h). NaN: not known.
double peak_tensor_memory_bytes(const Run& run);
double peak_process_memory_bytes(const Run& run);

}  // namespace sdp
