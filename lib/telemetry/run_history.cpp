#include "telemetry/run_history.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "experiment/run_format.h"
#include "io/file.h"
#include "process/identity.h"
#include "spec/error.h"
#include "text/json_text.h"

namespace sdp {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const ManifestData& data) {
  return {{"samples", data.samples}, {"hash", data.hash}};
}

ManifestData data_of(const ordered_json& json) {
  return {.samples = json.at("samples").get<int64_t>(), .hash = json.at("hash").get<std::string>()};
}

RunHistory history_of(const ordered_json& json) {
  RunHistory history{.id = json.at("id").get<std::string>(), .began = json.at("began").get<std::string>()};
  if (const ordered_json& from = json.at("imported"); !from.is_null())
    history.imported = {.path = from.at("path").get<std::string>(),
                        .bytes = from.at("bytes").get<int64_t>(),
                        .xxh3_128 = from.at("xxh3_128").get<std::string>()};
  history.training_data = data_of(json.at("training_data"));
  history.test_data = data_of(json.at("test_data"));
  for (const ordered_json& change : json.at("changes"))
    history.changes.push_back({.step = change.at("step").get<int64_t>(),
                               .key = change.at("key").get<std::string>(),
                               .was = change.at("was").get<std::string>(),
                               .now = change.at("now").get<std::string>()});
  return history;
}

}  // namespace

RunHistory new_history() {
  return {.id = random_id(), .began = utc_now()};
}

void continue_history(RunHistory& history, int64_t step, const std::vector<SpecChange>& changes,
                      const ManifestData& training_data, const ManifestData& test_data) {
  const auto add = [&](const std::string& key, const std::string& was, const std::string& now) {
    if (step > 0) history.changes.push_back({.step = step, .key = key, .was = was, .now = now});
  };
  for (const SpecChange& change : changes)
    add(change.key, change.saved, change.now);
  const auto take_data = [&](const char* key, ManifestData& known, const ManifestData& now) {
    if (known != ManifestData() && known.hash != now.hash) add(key, known.hash, now.hash);
    known = now;
  };
  take_data("training_data", history.training_data, training_data);
  take_data("test_data", history.test_data, test_data);
}

std::string history_text(const RunHistory& history) {
  ordered_json imported;  // null: trained from scratch
  if (history.imported)
    imported = {{"path", history.imported->path},
                {"bytes", history.imported->bytes},
                {"xxh3_128", history.imported->xxh3_128}};
  ordered_json changes = ordered_json::array();
  for (const RunChange& change : history.changes)
    changes.push_back({{"step", change.step}, {"key", change.key}, {"was", change.was}, {"now", change.now}});
  const ordered_json json = {{"format", kRunFormat},
                             {"id", history.id},
                             {"began", history.began},
                             {"imported", std::move(imported)},
                             {"training_data", json_of(history.training_data)},
                             {"test_data", json_of(history.test_data)},
                             {"changes", std::move(changes)}};
  // A path may contain bytes that are not UTF-8.
  return json_text(json, 2) + "\n";
}

std::optional<RunHistory> read_history(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const std::string text = read_text(path);
  try {
    return history_of(ordered_json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        fmt::format("{}: not written by sdp-train ({}). Every checkpoint of the run has a "
                    "copy; --resume of the run writes it again.",
                    path.string(), error.what()));
  }
}

}  // namespace sdp
