#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "io/event_file.h"
#include "io/file.h"
#include "run/metrics.h"
#include "run/run_metrics.h"
#include "run/run_summary.h"
#include "spec/json_fields.h"
#include "temp_folder.h"

using namespace sdp;
using nlohmann::json;

// What TensorBoard reads from the files, and their checksums: test/cli/test_events.py.

namespace {

struct Forgetful {
  double listed = 0;
  int64_t forgotten = 0;

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("listed", &Forgetful::listed);
  }
};
static_assert(!lists_every_member<Forgetful>());

std::vector<std::string> event_files(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& file : files_matching(folder.path(), "events.out.tfevents.*"))
    names.push_back(file.filename().string());
  return names;
}

}  // namespace

TEST_CASE("values of processes are lists by rank, perplexities follow, and unset values are left out") {
  const json train = json::parse(
      to_json_line(TrainRecord{.exchange = {{{.reduce_bytes = 1, .reduce_wait_ms = 0, .gather_wait_ms = 1},
                                             {.reduce_bytes = 2, .reduce_wait_ms = 0.25}}},
                               .memory = {{{{.weights = 20}}, {{.weights = 21}}}}}));
  CHECK(train["kind"] == "train");
  CHECK(train["exchange"]["reduce_bytes"] == json{1, 2});
  CHECK(train["exchange_wait_ms"] == 0.625);
  CHECK(train["memory"]["weights_bytes"] == json{20, 21});

  EvalRecord eval = {.loss = 0, .tokens = 80};
  eval.loss_uncorrected = -std::numeric_limits<double>::infinity();
  const json evaluation = json::parse(to_json_line(eval));
  CHECK(evaluation["perplexity"] == 1);  // exp(0) and exp(-inf)
  CHECK(evaluation["loss_uncorrected"].is_null());
  CHECK(evaluation["perplexity_uncorrected"] == 0);
  CHECK_FALSE(evaluation.contains("branch_scale_trial"));
  CHECK_FALSE(json::parse(to_json_line(EvalRecord{.loss = 0})).contains("perplexity"));
  CHECK_FALSE(json::parse(to_json_line(StartRecord{.step = 3})).contains("checkpoint"));
}

TEST_CASE("a line reads back as the record from which it was written") {
  const auto read_back = [](const auto& record) {
    using Record = std::remove_cvref_t<decltype(record)>;
    const std::string line = to_json_line(record);
    const Record read = std::get<Record>(record_of_line(line).value());
    CHECK(to_json_line(read) == line);
    return read;
  };
  TrainRecord train = {.step = 3, .loss = std::nan("")};
  train.memory.ranks = {{{.weights = 1}}, {{.weights = 2, .buckets = 3}}};
  train.exchange.ranks = {{.reduce_ms = 0.5}, {.busy_ms = 0.25}};
  const TrainRecord read = read_back(train);
  CHECK(std::isnan(read.loss));
  CHECK(read.memory == train.memory);
  CHECK(read.exchange == train.exchange);

  EvalRecord eval = {.step = 3, .loss = 2, .tokens = 80, .loss_uncorrected = 3, .branch_scale = 0.5};
  eval.branch_scale_trial = BranchScaleTrial{.samples = 800, .loss_none = 1.5, .loss_survival = 1.25};
  eval.subnetwork_loss = {1, std::nan("")};
  CHECK(read_back(eval).branch_scale_trial->loss_survival == 1.25);
  CHECK(read_back(EvalRecord{.step = 3, .skipped_samples = 4}).skipped_samples == 4);
  CHECK(
      read_back(StartRecord{.checkpoint = "c", .job = "7", .job_restarts = 2, .hosts = {"a"}}).job_restarts ==
      2);
  CHECK(read_back(CheckpointRecord{.step = 3, .save_s = 0.5, .bytes = 7}).bytes == 7);
  const NonfiniteRecord nonfinite = {
      .step = 3, .skipped = true, .gradient_ranks = {1}, .batches = {{.rank = 1, .samples = {5, 6}}}};
  CHECK(read_back(nonfinite).batches.at(0).samples == std::vector<int64_t>{5, 6});
}

TEST_CASE("a line of an older version lacks keys; one of a newer version has more") {
  const auto train = std::get<TrainRecord>(
      *record_of_line(R"({"kind":"train","step":7,"loss":1,"new":[{}],"memory":{"weights_bytes":[1,2]}})"));
  CHECK(train.loss == 1);
  CHECK(std::isnan(train.step_ms));
  CHECK(train.processes.peak_tensor_memory_bytes == 0);
  CHECK(train.exchange.ranks.empty());
  REQUIRE(train.memory.ranks.size() == 2);
  CHECK(train.memory.ranks[1].weights == 2);
  const auto eval = std::get<EvalRecord>(*record_of_line(R"({"kind":"eval","step":7})"));
  CHECK(eval.branch_scale == 1);
  CHECK_FALSE(eval.loss_uncorrected);
  CHECK(std::isnan(eval.times.eval_s));
  CHECK_FALSE(record_of_line(R"({"kind":"of a newer program"})"));
  for (const char* line : {"", "7", "{}", R"({"kind":"train"})", R"({"kind":"eval","step":1,"loss":[]})",
                           R"({"kind":"train","step":1,"memory":{"weights_bytes":["x"]}})"})
    CHECK_THROWS_AS(record_of_line(line), FieldError);
}

TEST_CASE("numbers keep every bit; values that JSON lacks are null") {
  for (const double loss : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2.302585092994046}) {
    const auto read = json::parse(to_json_line(TraceRecord{.loss = loss}))["loss"].get<double>();
    CHECK(std::memcmp(&read, &loss, sizeof loss) == 0);
  }
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK(json::parse(to_json_line(TrainRecord{.loss = loss}))["loss"].is_null());
}

TEST_CASE("each line is in the file as soon as it is appended; the last evaluation at a step is found") {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  JsonLines metrics(path);
  metrics.append(TrainRecord{.step = 2});
  metrics.append(EvalRecord{.step = 1, .branch_scale = 0.25});
  CHECK(get(path) == to_json_line(TrainRecord{.step = 2}) + "\n" +
                         to_json_line(EvalRecord{.step = 1, .branch_scale = 0.25}) + "\n");
  for (const auto& missing : {path, folder / "none"})
    CHECK_FALSE(find_evaluation(missing, 2));
  metrics.append(EvalRecord{.step = 2});
  metrics.append(EvalRecord{.step = 2, .loss_uncorrected = 2, .branch_scale = 0.5});
  CHECK(find_evaluation(path, 2).value().branch_scale == 0.5);
  CHECK(
      contains(message_of<DataError>([] { JsonLines("/dev/full").append(EvalRecord{}); }), "No space left"));
}

TEST_CASE("cut_back keeps the lines up to a step and drops an incomplete one") {
  const TempFolder folder;
  const auto path = folder / "trace.jsonl";
  CHECK(cut_back(path, 2) == 0);
  CHECK_FALSE(std::filesystem::exists(path));
  const std::string kept = "{\"step\":1,\"x\":0.10}\n{\"kind\":\"eval\",\"step\":2}\n";
  // Later lines in any order, incomplete ones even of an early enough step, and nothing to cut.
  for (const std::string& text :
       {"{\"step\":3}\n" + kept + "{\"step\":4}\n", kept + "{\"step\":2}", kept + "{\"st", kept}) {
    put(path, text);
    CHECK(cut_back(path, 2) == 2);
    CHECK(get(path) == kept);
  }
  CHECK(cut_back(path, -1) == 0);
  CHECK(get(path).empty());
  // A broken line in the middle is reported, and nothing is lost.
  for (const char* broken : {"{\"st\n", "{}\n", "7\n", "\n"}) {
    const std::string text = kept + broken + kept;
    put(path, text);
    CHECK(contains(message_of<DataError>([&] { cut_back(path, 2); }), path.string() + ", line 3"));
    CHECK(get(path) == text);
  }
}

TEST_CASE("a folder's event files are named in the order of their creation") {
  const TempFolder folder;
  put(folder / "events.out.tfevents.9000000000.elsewhere", "of a host whose clock is ahead");
  for (int i = 0; i < 3; ++i)
    EventFile(folder.path(), 0, {}).append(1, {{"train/loss", 1}});
  const std::vector<std::string> names = event_files(folder);
  REQUIRE(names.size() == 4);
  for (int i = 1; i < 4; ++i)
    CHECK(names[static_cast<size_t>(i)].starts_with("events.out.tfevents.900000000" + std::to_string(i)));
}

TEST_CASE("records go to both files; values that are not finite are not written as scalars") {
  const TempFolder folder;
  const RunFolder run = {folder.path()};
  RunMetrics metrics(run, 0, ExperimentSpec());
  const TrainRecord train = {.step = 4, .loss = 2, .overlap = std::nan("")};
  metrics.append(train);
  CHECK(get(run.metrics()) == to_json_line(train) + "\n");
  const std::string events = get(folder.path() / event_files(folder).front());
  CHECK(contains(events, "train/loss"));
  CHECK_FALSE(contains(events, "train/overlap"));
  CHECK(scalars_event(1.5, 300, {{"x", std::nan("")}, {"y", -INFINITY}, {"a/b", 0.5}}) ==
        scalars_event(1.5, 300, {{"a/b", 0.5}}));
}

TEST_CASE("a summary is read back unchanged; invalid ones are refused, naming file and key") {
  // Its keys and values: test/cli/test_resume.py.
  const TempFolder folder;
  const std::filesystem::path path = folder / "summary.json";
  CHECK_FALSE(read_summary(path).has_value());
  const RunSummary summary = {.step = 20,
                              .epochs = 1.0 / 3,
                              .device = "CPU",
                              .skipped_steps = 3,
                              .times = {.train_s = 8, .data_s = 1}};
  write_summary(path, summary);
  CHECK(read_summary(path) == summary);
  for (const char* text : {"", "[]", "{\"step\": \"many\"}", "{\"total_steps\": 3}"}) {
    put(path, text);
    const std::string message = message_of<DataError>([&] { read_summary(path); });
    CHECK(contains(message, path.string()));
    CHECK(contains(message, "\"step\""));
  }
}

TEST_CASE("steps without a time and a broken line in the metrics of a run whose times are added up") {
  const TempFolder folder;  // the sums: test/cli/test_resume.py
  const std::filesystem::path path = folder / "metrics.jsonl";
  CHECK(times_of_run(path) == RunTimes{});
  put(path, "{\"kind\":\"train\",\"step\":4,\"step_ms\":null}\n{\"kind\":\"eval\",\"step\":4,\"loss\":1}\n");
  CHECK(times_of_run(path) == RunTimes{});
  put(path, "{\"kind\":\"start\",\"step\":0}\n{\n");
  CHECK(contains(message_of<DataError>([&] { times_of_run(path); }), path.string() + ", line 2"));
}
