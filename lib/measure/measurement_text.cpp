#include "measure/measurement_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "text/json_text.h"
#include "text/table.h"
#include "text/units.h"

namespace sdp {
namespace {

/// Predicted and measured bytes of one kind of memory.
struct KindRow {
  const char* key;
  const char* name;
  int64_t predicted_bytes;
  int64_t measured_bytes;
};

std::vector<KindRow> kind_rows(const StepMeasurement& measured, const StepPrediction& predicted) {
  std::vector<KindRow> rows;
  for (const MemoryKindInfo& kind : kMemoryKinds)
    rows.push_back({kind.name, kind.name, predicted.peak.*kind.bytes, measured.peak.*kind.bytes});
  rows.push_back({"peak", "peak", predicted.peak.total(), measured.peak.total()});
  rows.push_back({"library_workspace", "library workspace, in addition", predicted.library_workspace_bytes,
                  measured.library_workspace_bytes});
  return rows;
}

}  // namespace

std::string describe_measurement(const Experiment& experiment, const StepMeasurement& measured,
                                 const StepPrediction& predicted) {
  std::string text = fmt::format(
      "{}: process {} of {} without the others, median of {} steps on {}: measured {}, predicted {} ({:.2f} "
      "of measured)\n",
      experiment.plan.layout.name, measured.process, experiment.schedule.placement.processes, measured.steps,
      measured.device, format_milliseconds(measured.step_ms), format_milliseconds(predicted.step_ms),
      predicted.step_ms / measured.step_ms);
  TextTable table({"tensors at the peak", "predicted", "measured", "predicted/measured"});
  for (const KindRow& row : kind_rows(measured, predicted))
    table.add_row({row.name, format_bytes(row.predicted_bytes), format_bytes(row.measured_bytes),
                   row.measured_bytes > 0 ? fmt::format("{:.3f}", static_cast<double>(row.predicted_bytes) /
                                                                      static_cast<double>(row.measured_bytes))
                                          : "-"});
  return text + table.str();
}

std::string measurement_json(const StepMeasurement& measured, const StepPrediction& predicted) {
  nlohmann::ordered_json json = {{"process", measured.process},
                                 {"device", measured.device},
                                 {"steps", measured.steps},
                                 {"predicted_step_ms", predicted.step_ms},
                                 {"step_ms", measured.step_ms}};
  for (const KindRow& row : kind_rows(measured, predicted)) {
    json["predicted_bytes"][row.key] = row.predicted_bytes;
    json["measured_bytes"][row.key] = row.measured_bytes;
  }
  return json_text(json, 2) + "\n";
}

}  // namespace sdp
