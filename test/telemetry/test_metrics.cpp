#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "spec/error.h"
#include "spec/json_fields.h"
#include "telemetry/metrics.h"
#include "temp_folder.h"

using namespace sdp;
using nlohmann::json;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

struct Forgetful {
  double listed = 0;
  int64_t forgotten = 0;

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("listed", &Forgetful::listed);
  }
};
static_assert(!lists_every_member<Forgetful>());

}  // namespace

TEST_CASE("records are lines of JSON with the documented keys", "[metrics]") {
  const TrainRecord train = {
      .step = 3,
      .epoch = 0.5,
      .loss = 2,
      .accuracy = 0.75,
      .lr = 0.1,
      .samples_per_s = 1000,
      .flops_per_s = 1e9,
      .utilization = 0.5,
      .step_ms = 1.5,
      .processes = {.data_wait_ms = 0.25,
                    .skipped_samples = 2,
                    .peak_process_memory_bytes = 1234567890123,
                    .peak_tensor_memory_bytes = 155},
      .bytes_sent = 42,
      .overlap = 0.75,
      .slowest_rank = 1,
      .exchange = {{{.reduce_bytes = 1,
                     .publish_bytes = 3,
                     .reduce_ms = 0.5,
                     .publish_ms = 2,
                     .reduce_wait_ms = 0,
                     .publish_wait_ms = 1,
                     .busy_ms = 7},
                    {.reduce_bytes = 2,
                     .publish_bytes = 4,
                     .reduce_ms = 1,
                     .publish_ms = 3,
                     .reduce_wait_ms = 0.25,
                     .publish_wait_ms = 0,
                     .busy_ms = 8}}},
      .times = {{{.forward_ms = 4, .backward_ms = 8, .optimizer_ms = 0.5},
                 {.forward_ms = 5, .backward_ms = 9, .optimizer_ms = 1}}},
      .memory = {{{{.weights = 20, .gradients = 30, .optimizer = 40, .activations = 10, .buckets = 50}},
                  {{.weights = 21, .gradients = 31, .optimizer = 41, .activations = 11, .buckets = 51}}}}};
  CHECK(
      to_json_line(train) ==
      R"({"kind":"train","step":3,"epoch":0.5,"loss":2.0,"accuracy":0.75,"lr":0.1,"samples_per_s":1000.0,)"
      R"("flops_per_s":1000000000.0,"utilization":0.5,"step_ms":1.5,)"
      R"("data_wait_ms":0.25,"skipped_samples":2,"peak_process_memory_bytes":1234567890123,)"
      R"("peak_tensor_memory_bytes":155,"bytes_sent":42,)"
      R"("overlap":0.75,"slowest_rank":1,"exchange_wait_ms":0.625,)"
      R"("exchange":{"reduce_bytes":[1,2],"publish_bytes":[3,4],)"
      R"("reduce_ms":[0.5,1.0],"publish_ms":[2.0,3.0],"reduce_wait_ms":[0.0,0.25],)"
      R"("publish_wait_ms":[1.0,0.0],"busy_ms":[7.0,8.0]},"times":{"forward_ms":[4.0,5.0],)"
      R"("backward_ms":[8.0,9.0],"optimizer_ms":[0.5,1.0]},"memory":{"weights_bytes":[20,21],)"
      R"("gradients_bytes":[30,31],"optimizer_bytes":[40,41],"activations_bytes":[10,11],"buckets_bytes":[50,51]}})");

  EvalRecord eval = {.step = 3, .loss = 2.5, .accuracy = 0.75, .samples = 10, .test_samples = 40};
  eval.times = {.eval_s = 15, .assemble_s = 1, .recalibrate_s = 2, .evaluate_s = 4, .subnetworks_s = 8};
  const std::string times =
      R"("eval_s":15.0,"assemble_s":1.0,"recalibrate_s":2.0,"evaluate_s":4.0,"subnetworks_s":8.0})";
  CHECK(to_json_line(eval) ==
        R"({"kind":"eval","step":3,"loss":2.5,"accuracy":0.75,"samples":10,"test_samples":40,)" + times);
  eval.skipped_samples = 4;
  eval.loss_uncorrected = 3;
  eval.accuracy_uncorrected = 0.5;
  eval.subnetwork_loss = {1, 2};
  eval.subnetwork_accuracy = {0.25, 0.5};
  eval.subnetwork_standard_error = {0.125, 0.5};
  eval.subnetwork_samples = 5;
  eval.loss_on_subnetwork_samples = 1.5;
  eval.accuracy_on_subnetwork_samples = 0.75;
  eval.recalibrated_batches = 20;
  eval.branch_scale = 0.5;
  eval.branch_scale_trial =
      BranchScaleTrial{.samples = 800, .loss_none = 1.5, .loss_survival = 1.25, .standard_error = 0.1};
  const std::string subnetworks =
      R"("subnetwork_loss":[1.0,2.0],"subnetwork_accuracy":[0.25,0.5],)"
      R"("subnetwork_standard_error":[0.125,0.5],"subnetwork_samples":5,)"
      R"("loss_on_subnetwork_samples":1.5,"accuracy_on_subnetwork_samples":0.75,)";
  CHECK(to_json_line(eval) ==
        R"({"kind":"eval","step":3,"loss":2.5,"accuracy":0.75,"samples":10,"test_samples":40,)"
        R"("skipped_samples":4,"loss_uncorrected":3.0,"accuracy_uncorrected":0.5,)"
        R"("recalibrated_batches":20,"branch_scale":0.5,)"
        R"("branch_scale_trial":{"samples":800,"loss_none":1.5,"loss_survival":1.25,"standard_error":0.1},)" +
            subnetworks + times);
  eval.branch_scale_trial.reset();
  // exp(0) and exp(-inf)
  eval.loss = 0;
  eval.loss_uncorrected = -std::numeric_limits<double>::infinity();
  eval.skipped_samples = 0;
  eval.tokens = 80;
  eval.test_tokens = 320;
  CHECK(
      to_json_line(eval) ==
      R"({"kind":"eval","step":3,"loss":0.0,"perplexity":1.0,"accuracy":0.75,"samples":10,)"
      R"("test_samples":40,"tokens":80,"test_tokens":320,"loss_uncorrected":null,)"
      R"("perplexity_uncorrected":0.0,"accuracy_uncorrected":0.5,"recalibrated_batches":20,"branch_scale":0.5,)" +
          subnetworks + times);

  StartRecord start = {.step = 3,
                       .data_s = 0.5,
                       .time = "2026-11-22T18:30:00Z",
                       .version = "0.2",
                       .hosts = {"a", "b"},
                       .threads = {8, 4}};
  CHECK(to_json_line(start) ==
        R"({"kind":"start","step":3,"data_s":0.5,"time":"2026-11-22T18:30:00Z","version":"0.2",)"
        R"("hosts":["a","b"],"threads":[8,4]})");
  start.checkpoint = "step-00000003";
  CHECK(contains(to_json_line(start), R"("step":3,"checkpoint":"step-00000003","data_s")"));
  start.job = "77";
  start.job_restarts = 1;
  CHECK(contains(to_json_line(start), R"("job":"77","job_restarts":1)"));
  CHECK(to_json_line(CheckpointRecord{.step = 3, .save_s = 0.5, .bytes = 1234567890123}) ==
        R"({"kind":"checkpoint","step":3,"save_s":0.5,"bytes":1234567890123})");

  CHECK(to_json_line(TraceRecord{.step = 3, .worker = 1, .replica = 0, .loss = 2.5, .samples = {7, 49999}}) ==
        R"({"step":3,"worker":1,"replica":0,"loss":2.5,"samples":[7,49999]})");
}

TEST_CASE("a line reads back as the record from which it was written", "[metrics]") {
  const auto read_back = [](const auto& record) {
    const std::string line = to_json_line(record);
    const std::optional<MetricsRecord> read = record_of_line(line);
    REQUIRE(read);
    using Record = std::remove_cvref_t<decltype(record)>;
    REQUIRE(std::holds_alternative<Record>(*read));
    CHECK(to_json_line(std::get<Record>(*read)) == line);
    return std::get<Record>(*read);
  };
  TrainRecord train = {
      .step = 3, .loss = std::nan(""), .processes = {.skipped_samples = 2}, .slowest_rank = 1};
  train.memory.ranks = {{{.weights = 1}}, {{.weights = 2, .buckets = 3}}};
  train.exchange.ranks = {{.reduce_ms = 0.5}, {.busy_ms = 0.25}};
  const TrainRecord read = read_back(train);
  CHECK(std::isnan(read.loss));
  CHECK(read.memory == train.memory);
  CHECK(read.exchange == train.exchange);

  EvalRecord eval = {.step = 3, .loss = 2, .tokens = 80, .loss_uncorrected = 3, .branch_scale = 0.5};
  eval.branch_scale_trial =
      BranchScaleTrial{.samples = 800, .loss_none = 1.5, .loss_survival = 1.25, .standard_error = 0.1};
  eval.subnetwork_loss = {1, std::nan("")};
  CHECK(read_back(eval).branch_scale_trial->loss_survival == 1.25);
  CHECK(read_back(EvalRecord{.step = 3, .skipped_samples = 4}).skipped_samples == 4);
  CHECK(read_back(StartRecord{.step = 3, .checkpoint = "c", .job = "7", .job_restarts = 2, .hosts = {"a"}})
            .job_restarts == 2);
  CHECK(read_back(CheckpointRecord{.step = 3, .save_s = 0.5, .bytes = 7}).bytes == 7);
  const NonfiniteRecord nonfinite = {
      .step = 3, .skipped = true, .gradient_ranks = {1}, .batches = {{.rank = 1, .samples = {5, 6}}}};
  CHECK(read_back(nonfinite).batches.at(0).samples == std::vector<int64_t>{5, 6});
}

TEST_CASE("a line of an older version lacks keys; one of a newer version has more", "[metrics]") {
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

TEST_CASE("numbers keep every bit; values that JSON lacks are null", "[metrics]") {
  for (const double loss : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.0, 2.302585092994046}) {
    const auto read = json::parse(to_json_line(TraceRecord{.loss = loss}))["loss"].get<double>();
    CHECK(std::memcmp(&read, &loss, sizeof loss) == 0);
  }
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()})
    CHECK(json::parse(to_json_line(TrainRecord{.loss = loss}))["loss"].is_null());
}

TEST_CASE("each line is in the file as soon as it is appended", "[metrics]") {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  put(path, "{\"step\":0}\n");
  JsonLines metrics(path);
  metrics.append(TrainRecord{.step = 1});
  CHECK(lines_of(path).size() == 2);
  metrics.append(EvalRecord{.step = 2});
  REQUIRE(lines_of(path).size() == 3);
  CHECK(json::parse(lines_of(path)[1])["kind"] == "train");
  CHECK(json::parse(lines_of(path)[2])["kind"] == "eval");
  CHECK(
      contains(message_of<DataError>([] { JsonLines("/dev/full").append(EvalRecord{}); }), "No space left"));
}

TEST_CASE("the last evaluation at a step is found among other lines", "[metrics]") {
  const TempFolder folder;
  const auto path = folder / "metrics.jsonl";
  CHECK_FALSE(find_evaluation(path, 2));
  JsonLines metrics(path);
  metrics.append(TrainRecord{.step = 2});
  metrics.append(EvalRecord{.step = 1, .branch_scale = 0.25});
  CHECK_FALSE(find_evaluation(path, 2));
  metrics.append(EvalRecord{.step = 2});
  metrics.append(EvalRecord{.step = 2, .loss_uncorrected = 2, .branch_scale = 0.5});
  REQUIRE(find_evaluation(path, 2));
  CHECK(find_evaluation(path, 2)->branch_scale == 0.5);
}

TEST_CASE("cut_back keeps the lines up to a step and drops an incomplete one", "[metrics]") {
  const TempFolder folder;
  const auto path = folder / "trace.jsonl";
  const std::string kept = "{\"step\":1,\"x\":0.10}\n{\"kind\":\"eval\",\"step\":2}\n";
  SECTION("later lines, in any order") {
    put(path, "{\"step\":3}\n" + kept + "{\"step\":4}\n");
    CHECK(cut_back(path, 2) == 2);
    CHECK(get(path) == kept);
  }
  SECTION("an incomplete line, even of an early enough step") {
    put(path, kept + "{\"step\":2}");
    cut_back(path, 5);
    CHECK(get(path) == kept);
    put(path, kept + "{\"st");
    cut_back(path, 5);
    CHECK(get(path) == kept);
  }
  SECTION("nothing to cut") {
    put(path, kept);
    cut_back(path, 2);
    CHECK(get(path) == kept);
  }
  SECTION("everything") {
    put(path, kept);
    CHECK(cut_back(path, -1) == 0);
    CHECK(get(path).empty());
  }
  SECTION("no file") {
    CHECK(cut_back(path, 2) == 0);
    CHECK_FALSE(std::filesystem::exists(path));
  }
  SECTION("a broken line in the middle is reported, and nothing is lost") {
    for (const char* broken : {"{\"st\n", "{}\n", "7\n", "\n"}) {
      const std::string text = kept + broken + kept;
      put(path, text);
      CHECK(contains(message_of<DataError>([&] { cut_back(path, 2); }), path.string() + ", line 3"));
      CHECK(get(path) == text);
    }
  }
}
