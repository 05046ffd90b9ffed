#include "telemetry/run_summary.h"

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/lines.h"
#include "spec/error.h"

namespace sdp {
namespace {

using nlohmann::ordered_json;

/// Calls visit(key, member) for every key of the file, in its order.
template <class Summary, class Visit>
void for_each_member(Summary& summary, Visit&& visit) {
  visit("step", summary.step);
  visit("total_steps", summary.total_steps);
  visit("samples_per_step", summary.samples_per_step);
  visit("epochs", summary.epochs);
  visit("processes", summary.processes);
  visit("threads_per_process", summary.threads_per_process);
  visit("device", summary.device);
  visit("version", summary.version);
}

template <class Times, class Visit>
void for_each_time(Times& times, Visit&& visit) {
  visit("train_s", times.train_s);
  visit("eval_s", times.eval_s);
  visit("save_s", times.save_s);
  visit("data_s", times.data_s);
}

/// A number that may be null or, in lines of an older program, not there.
double number(const ordered_json& line, const char* key) {
  const auto found = line.find(key);
  return found == line.end() || found->is_null() ? 0 : found->get<double>();
}

}  // namespace

RunTimes times_of_run(const std::filesystem::path& metrics) {
  RunTimes times;
  int64_t steps_before = 0;
  for_each_line(metrics, [&](int64_t number_of_line, const std::string& text, bool) {
    try {
      const ordered_json line = ordered_json::parse(text);
      const auto step = line.at("step").get<int64_t>();
      if (line.at("kind") == "train") {
        times.train_s += number(line, "step_ms") / 1000 * static_cast<double>(step - steps_before);
        steps_before = step;
      }
      times.eval_s += number(line, "eval_s");
      times.save_s += number(line, "save_s");
      times.data_s += number(line, "data_s");
    } catch (const nlohmann::json::exception& error) {
      throw DataError(metrics.string() + ", line " + std::to_string(number_of_line) +
                      ": not a line of metrics (" + error.what() + "). Delete that line and resume again.");
    }
  });
  return times;
}

void write_summary(const std::filesystem::path& path, const RunSummary& summary) {
  ordered_json json;
  const auto put = [&](const char* key, const auto& value) { json[key] = value; };
  for_each_member(summary, put);
  put("skipped_steps", summary.skipped_steps);
  for_each_time(summary.times, put);
  write_file_atomically(path, json.dump(2) + "\n");
}

std::optional<RunSummary> read_summary(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const ordered_json json = ordered_json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  RunSummary summary;
  const auto take = [&](const char* key, auto& value) {
    try {
      json.at(key).get_to(value);
    } catch (const nlohmann::json::exception&) {
      throw DataError(path.string() + ": expected a JSON object with the key \"" + key +
                      "\". Remove the file; --resume of the run writes it again.");
    }
  };
  for_each_member(summary, take);
  if (json.contains("skipped_steps")) take("skipped_steps", summary.skipped_steps);
  for_each_time(summary.times, [&](const char* key, double& value) {
    if (json.contains(key)) take(key, value);  // a run of version 0.1.0 has none
  });
  return summary;
}

}  // namespace sdp
