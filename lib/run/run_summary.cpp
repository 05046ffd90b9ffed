#include "run/run_summary.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "run/metrics.h"
#include "spec/error.h"
#include "spec/json_fields.h"

namespace sdp {
namespace {

/// Sums the times of the records; an unknown time adds nothing.
struct SumOfTimes {
  RunTimes times = {};
  int64_t steps_before = 0;

  static void add(double& sum, double seconds) {
    if (std::isfinite(seconds)) sum += seconds;
  }
  void operator()(const TrainRecord& record) {
    add(times.train_s, record.step_ms / 1000 * static_cast<double>(record.step - steps_before));
    steps_before = record.step;
  }
  void operator()(const EvalRecord& record) { add(times.eval_s, record.times.eval_s); }
  void operator()(const CheckpointRecord& record) { add(times.save_s, record.save_s); }
  void operator()(const StartRecord& record) { add(times.data_s, record.data_s); }
  void operator()(const NonfiniteRecord&) {}
};

}  // namespace

RunTimes times_of_run(const std::filesystem::path& metrics) {
  SumOfTimes sum;
  for_each_record(metrics, "Delete that line and resume again.",
                  [&](const MetricsRecord& record) { std::visit(sum, record); });
  return sum.times;
}

void write_summary(const std::filesystem::path& path, const RunSummary& summary) {
  write_file_atomically(path, json_text(json_of(summary), 2) + "\n");
}

std::optional<RunSummary> read_summary(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const auto json = nlohmann::ordered_json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  RunSummary summary;
  try {
    read_json(json, summary, MissingKeys::kUnknown);
  } catch (const FieldError& error) {
    throw DataError(path.string() + ": not written by sdp-train (" + error.what() +
                    "). Remove the file; --resume of the run writes it again.");
  }
  return summary;
}

}  // namespace sdp
