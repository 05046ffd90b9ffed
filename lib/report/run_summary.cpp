#include "report/run_summary.h"

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
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

}  // namespace

void write_summary(const std::filesystem::path& path, const RunSummary& summary) {
  ordered_json json;
  for_each_member(summary, [&](const char* key, const auto& value) { json[key] = value; });
  write_file_atomically(path, json.dump(2) + "\n");
}

std::optional<RunSummary> read_summary(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const ordered_json json = ordered_json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  RunSummary summary;
  for_each_member(summary, [&](const char* key, auto& value) {
    try {
      json.at(key).get_to(value);
    } catch (const nlohmann::json::exception&) {
      throw DataError(path.string() + ": expected a JSON object with the key \"" + key +
                      "\". Remove the file; --resume of the run writes it again.");
    }
  });
  return summary;
}

}  // namespace sdp
