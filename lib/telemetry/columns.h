#pragma once

// The columns of `sdp-train report`, as the lab (python/sdp_lab) gets them from `sdp-train describe`.

#include <string>
#include <string_view>
#include <vector>

#include "telemetry/fields.h"

namespace sdp {

/// Models for which printed tables show a column; the CSV file has it for all.
enum class Models { kAll, kOfImages, kOfTokens };

/// Where a column's values come from.
enum class Source {
  kTrainLines,  ///< `field` of the training lines, combined over lines and processes
  kLastEval,    ///< `field` of the last evaluation; of a list, `over_workers`
  kRun          ///< computed by the lab from several files of the run, by `key`
};

struct ReportColumn {
  std::string key;         ///< with the unit: a column of the CSV file
  std::string_view title;  ///< for tables; the unit is added by quantity
  FieldOptions options;    ///< quantity, comparison, detail, how lines and processes are combined
  Models models = Models::kAll;
  Source source = Source::kRun;
  std::string field = {};              ///< dotted: "times.forward_ms"
  std::string_view over_workers = {};  ///< "mean", "min" or "max"
};

/// In the order of a table's columns.
std::vector<ReportColumn> report_columns();

/// JSON: every column with key, title, quantity, comparison, detail, models, `better` ("higher", "lower" or
/// null), and its source.
std::string report_columns_json();

}  // namespace sdp
