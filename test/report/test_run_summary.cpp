#include <nlohmann/json.hpp>

#include "catch.h"
#include "checkpoint/temp_folder.h"
#include "report/run_summary.h"
#include "spec/error.h"

using namespace sdp;
using nlohmann::json;

TEST_CASE("a summary is a JSON object and reads back as it was", "[run_summary]") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "summary.json";
  CHECK_FALSE(read_summary(path).has_value());

  const RunSummary summary = {.step = 20,
                              .total_steps = 20,
                              .samples_per_step = 128,
                              .epochs = 1.0 / 3,
                              .processes = 2,
                              .threads_per_process = 4,
                              .device = "CPU",
                              .version = "0.1.0"};
  write_summary(path, summary);
  CHECK(read_summary(path) == summary);
  CHECK(json::parse(get(path)) == json{{"step", 20},
                                       {"total_steps", 20},
                                       {"samples_per_step", 128},
                                       {"epochs", 1.0 / 3},
                                       {"processes", 2},
                                       {"threads_per_process", 4},
                                       {"device", "CPU"},
                                       {"version", "0.1.0"}});
}

TEST_CASE("what is no summary is refused by file and key", "[run_summary]") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "summary.json";
  for (const char* text : {"", "[]", "{\"step\": \"many\"}", "{\"total_steps\": 3}"}) {
    put(path, text);
    const std::string message = message_of<DataError>([&] { read_summary(path); });
    CHECK(contains(message, path.string()));
    CHECK(contains(message, "\"step\""));
  }
}
