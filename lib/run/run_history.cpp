#include "run/run_history.h"

#include <fmt/format.h>

#include "io/file.h"
#include "process/identity.h"
#include "spec/error.h"
#include "spec/json_fields.h"

namespace sdp {

RunHistory new_history() {
  return {.id = random_id(), .began = utc_now()};
}

void continue_history(RunHistory& history, int64_t step, const std::vector<SpecChange>& changes,
                      const DataIdentity& training_data, const DataIdentity& test_data) {
  const auto add = [&](const std::string& key, const std::string& was, const std::string& now) {
    if (step > 0) history.changes.push_back({.step = step, .key = key, .was = was, .now = now});
  };
  for (const SpecChange& change : changes)
    add(change.key, change.saved, change.now);
  const auto take_data = [&](const char* key, DataIdentity& known, const DataIdentity& now) {
    if (known != DataIdentity() && known.hash != now.hash) add(key, known.hash, now.hash);
    known = now;
  };
  take_data("training_data", history.training_data, training_data);
  take_data("test_data", history.test_data, test_data);
}

std::string history_text(const RunHistory& history) {
  // A path may contain bytes that are not UTF-8.
  return json_text(json_of(history), 2) + "\n";
}

RunHistory read_history(const std::filesystem::path& path) {
  const auto json = nlohmann::ordered_json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  try {
    return struct_of<RunHistory>(json);
  } catch (const FieldError& error) {
    throw DataError(
        fmt::format("{}: not written by sdp-train ({}). Every checkpoint of the run has a "
                    "copy; --resume of the run writes it again.",
                    path.string(), error.what()));
  }
}

}  // namespace sdp
