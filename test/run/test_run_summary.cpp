#include "catch.h"
#include "run/run_summary.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;

TEST_CASE("a summary is read back unchanged; invalid ones are refused, naming file and key",
          "[run_summary]") {
  // Its keys and values: test/cli/test_resume.py.
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
                              .version = "0.1.0",
                              .skipped_steps = 3,
                              .times = {.train_s = 8, .eval_s = 4, .save_s = 2, .data_s = 1}};
  write_summary(path, summary);
  CHECK(read_summary(path) == summary);
  for (const char* text : {"", "[]", "{\"step\": \"many\"}", "{\"total_steps\": 3}"}) {
    put(path, text);
    const std::string message = message_of<DataError>([&] { read_summary(path); });
    CHECK(contains(message, path.string()));
    CHECK(contains(message, "\"step\""));
  }
}

TEST_CASE("the times of a run are the sums over its metrics", "[run_summary]") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "metrics.jsonl";
  CHECK(times_of_run(path) == RunTimes{});
  put(path, R"({"kind":"start","step":0,"data_s":0.5}
{"kind":"checkpoint","step":0,"save_s":1}
{"kind":"train","step":4,"step_ms":500}
{"kind":"eval","step":4,"eval_s":3,"assemble_s":1,"evaluate_s":2}
{"kind":"start","step":4,"data_s":0.25}
{"kind":"train","step":10,"step_ms":250}
{"kind":"train","step":12,"step_ms":null}
{"kind":"eval","step":12,"loss":1}
{"kind":"checkpoint","step":12,"save_s":0.5}
)");
  CHECK(times_of_run(path) ==
        RunTimes{.train_s = 4 * 0.5 + 6 * 0.25, .eval_s = 3, .save_s = 1.5, .data_s = 0.75});
  put(path, "{\"kind\":\"start\",\"step\":0}\n{\n");
  CHECK(contains(message_of<DataError>([&] { times_of_run(path); }), path.string() + ", line 2"));
}
