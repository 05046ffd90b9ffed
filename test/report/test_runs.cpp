#include <fmt/format.h>

#include <cmath>

#include "catch.h"
#include "report/find_runs.h"
#include "report/measures.h"
#include "small_runs.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;

namespace {

constexpr const char* kPlan =
    R"({"workers":2,"owners_per_unit":1,"processes":2,"flops_share":0.5,)"
    R"("per_worker":[{"flops_per_sample":10.0,"parameters":7},{"flops_per_sample":30.0,"parameters":5}]})";
constexpr const char* kMetrics =
    R"({"kind":"train","step":10,"epoch":0.5,"loss":2.5,"samples_per_s":null,"step_ms":3.0})"
    "\n"
    R"({"kind":"other","step":10})"
    "\n"
    R"({"kind":"eval","step":10,"loss":2.0,"accuracy":0.25,"subnetwork_loss":[3,null],"subnetwork_accuracy":[0.1,0.2]})"
    "\n";

void put_run(const fs::path& dir, const std::string& metrics = kMetrics) {
  fs::create_directories(dir);
  put(dir / "spec.yaml",
      "name: r\nseed: 4\ndata: {name: cifar10, path: p}\nsubnetwork: {workers: 2, coverage: 1/2}\n"
      "train: {epochs: 4, budget: coverage, batch_size_per_worker: 3}\n");
  put(dir / "plan.json", kPlan);
  put(dir / "metrics.jsonl", metrics);
}

double value_of(const Run& run, std::string_view key) {
  for (const Measure& measure : measures())
    if (measure.key == key) return measure.value(run);
  FAIL("no measure " << key);
  return NAN;
}

}  // namespace

TEST_CASE("a run is read from its folder", "[study]") {
  const TempFolder folder;
  put_run(folder.path(), std::string(kMetrics) + R"({"kind":"train","st)");  // cut short
  Run run = read_run(folder.path());
  CHECK(run.spec.seed == 4);
  CHECK(run.train.size() == 1);
  CHECK(std::isnan(run.train[0].samples_per_s));
  REQUIRE(run.evals.size() == 1);
  CHECK(run.evals[0].subnetwork_accuracy == std::vector<double>{0.1, 0.2});
  REQUIRE(run.evals[0].subnetwork_loss.size() == 2);
  CHECK(run.evals[0].subnetwork_loss[0] == 3);
  CHECK(std::isnan(run.evals[0].subnetwork_loss[1]));
  CHECK(run.step() == 10);
  CHECK(run.samples_per_step() == 6);
  CHECK(run.flops_per_step() == 3 * (10 + 30));
  // 4 epochs times 1/C, at 20 steps per epoch.
  CHECK(run.total_steps() == 160);
  CHECK_FALSE(run.is_finished());

  write_summary(folder / "summary.json", {.step = 10, .total_steps = 10, .device = "CPU", .version = "1"});
  run = read_run(folder.path());
  CHECK(run.is_finished());
  CHECK(run.total_steps() == 10);
  CHECK(run.end->device == "CPU");
  write_summary(folder / "summary.json", {.step = 5, .total_steps = 5});  // from before it was resumed
  CHECK_FALSE(read_run(folder.path()).is_finished());

  fs::remove(folder / "metrics.jsonl");
  fs::remove(folder / "summary.json");
  run = read_run(folder.path());
  CHECK(run.step() == 0);
  CHECK_FALSE(run.total_steps());
}

TEST_CASE("unreadable files are named", "[study]") {
  const TempFolder folder;
  const auto reason = [&] { return message_of<DataError>([&] { read_run(folder.path()); }); };
  for (const char* line :
       {"{\"kind\n", "7\n", "{\"step\":1}\n", "{\"kind\":\"train\"}\n",
        "{\"kind\":\"train\",\"step\":\"x\"}\n", "{\"kind\":\"eval\",\"step\":1,\"loss\":[]}\n"}) {
    put_run(folder.path(), std::string(kMetrics) + line + kMetrics);
    CHECK(contains(reason(), (folder / "metrics.jsonl").string() + ", line 4:"));
  }
  put_run(folder.path());
  for (const char* plan :
       {"{}", "[", R"({"workers":2,"owners_per_unit":1,"processes":0,"flops_share":1,"per_worker":[]})"}) {
    put(folder / "plan.json", plan);
    CHECK(contains(reason(), "plan.json"));
  }
  fs::remove(folder / "plan.json");
  CHECK(contains(reason(), "plan.json"));
  put_run(folder.path());
  put(folder / "summary.json", "{}");
  CHECK(contains(reason(), "summary.json"));
}

TEST_CASE("runs are searched for, each is found once, and broken ones are reported with the reason",
          "[study]") {
  const TempFolder folder;
  for (const char* name : {"b/2", "b/1", "a", "b/1/inner"})
    put_run(folder / name);
  put(folder / "a/plan.json", "?");
  fs::create_directory_symlink(folder.path(), folder / "b/back");
  put(folder / "b/sweep.json",
      R"({"name":"s","runs":[{"name":"x","folder":"2","label":"two"},{"name":"y","folder":"1","label":""}]})");
  const FoundRuns found = find_runs({folder.path(), folder / "b"});
  REQUIRE(found.runs.size() == 2);
  CHECK(found.runs[0].dir == folder / "b/1");
  CHECK(found.runs[0].sweep_label.empty());
  CHECK(found.runs[1].dir == folder / "b/2");
  CHECK(found.runs[1].sweep_label == "two");
  REQUIRE(found.unreadable.size() == 1);
  CHECK(found.unreadable[0].dir == folder / "a");
  CHECK(contains(found.unreadable[0].reason, "plan.json"));
  CHECK(find_runs({folder / "b/2"}).runs.size() == 1);

  put(folder / "b/sweep.json", R"({"name":"s","runs":[{"name":"x","folder":"2","label":"DDP, width 12"}]})");
  const std::string wrong = message_of<UsageError>([&] { find_runs({folder / "b"}); });
  CHECK(contains(wrong, (folder / "b/2").string()));
  CHECK(contains(wrong, "says DDP, but the run is B-SDP"));

  fs::create_directory(folder / "empty");
  CHECK(contains(message_of<UsageError>([&] { find_runs({folder / "empty"}); }), "contains no run"));
  CHECK(contains(message_of<UsageError>([&] { find_runs({folder / "none"}); }), "no such folder"));
  put(folder / "b/sweep.json", "{}");
  CHECK(contains(message_of<DataError>([&] { find_runs({folder.path()}); }), "sweep.json"));
}

TEST_CASE("copies of a run count once; different continuations of it count separately", "[study]") {
  const TempFolder folder;
  const auto put_copy = [&](const char* name, const RunHistory& history, int64_t step) {
    put_run(folder / name, fmt::format("{{\"kind\":\"train\",\"step\":{},\"loss\":1}}\n", step));
    put(folder / name / "run.json", history_text(history));
  };
  RunHistory history = new_history();
  put_copy("a", history, 10);
  put_copy("b", history, 20);
  put_copy("c", history, 20);
  put_copy("other", new_history(), 20);
  history.changes = {{.step = 10, .key = "optimizer.lr", .was = "1", .now = "2"}};
  put_copy("changed", history, 20);
  const FoundRuns found = find_runs({folder.path()});
  std::vector<std::filesystem::path> counted;
  for (const Run& run : found.runs)
    counted.push_back(run.dir.filename());
  CHECK(counted == std::vector<fs::path>{"b", "changed", "other"});
  REQUIRE(found.copies.size() == 2);
  for (const CopiedRun& copy : found.copies)
    CHECK(copy.counted == folder / "b");
  CHECK(found.copies[0].dir == folder / "a");
  CHECK(found.copies[1].dir == folder / "c");
}

TEST_CASE("measures of a run", "[study]") {
  Run run = small_run();
  CHECK(std::isnan(value_of(run, "accuracy")));
  CHECK(value_of(run, "largest_worker_parameters") == 40);
  CHECK(std::isnan(value_of(run, "step_ms")));
  CHECK(std::isnan(value_of(run, "peak_tensor_memory_bytes")));

  run.train = {train_record(10, 3, 900)};
  CHECK(value_of(run, "step_ms") == 900);
  run.train.push_back(train_record(20, 2, 20));
  run.train.push_back(train_record(30, 1, 40));
  run.train[0].memory.ranks[0].activations = 1;
  run.train[0].memory.ranks[1].activations = 7000;
  run.train[1].accuracy = 0.25;
  run.train[2].accuracy = 0.75;
  run.train[1].processes.peak_process_memory_bytes = 3 << 20;
  run.evals = {{.step = 20, .loss = 9, .accuracy = 0.1},
               {.step = 30,
                .loss = 1.5,
                .accuracy = 0.5,
                .accuracy_uncorrected = 0.25,
                .subnetwork_loss = {1, 4, 2, 3},
                .subnetwork_accuracy = {0.5, 0.3, 0.1, 0.5}}};
  CHECK(value_of(run, "accuracy") == 0.5);
  CHECK(value_of(run, "loss_nats") == 1.5);
  CHECK(value_of(run, "accuracy_uncorrected") == 0.25);
  CHECK(std::isnan(value_of(run, "loss_uncorrected_nats")));
  CHECK(value_of(run, "subnetwork_accuracy_mean") == Approx(0.35));
  CHECK(value_of(run, "subnetwork_accuracy_min") == 0.1);
  CHECK(value_of(run, "subnetwork_accuracy_max") == 0.5);
  CHECK(value_of(run, "subnetwork_loss_mean_nats") == 2.5);
  CHECK(value_of(run, "subnetwork_loss_min_nats") == 1);
  CHECK(value_of(run, "subnetwork_loss_max_nats") == 4);
  CHECK(std::isnan(value_of(run, "perplexity")));  // a model of images has none
  CHECK(value_of(run, "steps") == 30);
  CHECK(value_of(run, "epochs") == Approx(1.5));
  CHECK(value_of(run, "training_flops") == 30.0 * 4 * 2 * (100 + 200 + 300 + 400));
  CHECK(value_of(run, "step_ms") == 30);  // without the first record
  CHECK(value_of(run, "samples_per_s") == Approx((1600 + 800) / 2.0));
  CHECK(value_of(run, "flops_per_s") == Approx((8e6 / 20 + 8e6 / 40) / 2));
  CHECK(std::isnan(value_of(run, "utilization")));
  run.train[1].utilization = 0.5;
  run.train[2].utilization = 0.25;
  CHECK(value_of(run, "utilization") == 0.375);
  CHECK(value_of(run, "training_accuracy") == 0.75);  // from the last record
  // Means over two processes, with a step of 30 ms.
  CHECK(value_of(run, "forward_ms") == Approx((7.5 + 3.75) / 2));
  CHECK(value_of(run, "backward_ms") == Approx((15 + 7.5) / 2));
  CHECK(value_of(run, "exchange_wait_ms") == Approx((3 + 6) / 2.0));
  CHECK(value_of(run, "optimizer_ms") == Approx((1.5 + 0.75) / 2));
  CHECK(value_of(run, "data_wait_ms") == Approx(3));
  CHECK(value_of(run, "sent_bytes_per_step") == (100 + 300 + 20 + 60) / 2.0);
  CHECK(value_of(run, "peak_tensor_memory_bytes") == 7000 + 300 + 20 + 5 + 2);
  CHECK(value_of(run, "peak_tensor_memory_per_worker_bytes") ==
        value_of(run, "peak_tensor_memory_bytes") / 2);
  CHECK(value_of(run, "peak_process_memory_bytes") == 3 << 20);
  CHECK(value_of(run, "peak_activations_bytes") == 7000);
  CHECK(value_of(run, "peak_buckets_bytes") == 2);
}

TEST_CASE("perplexities of a language model", "[study]") {
  Run run = small_run();
  run.spec.data.set = TokensSpec();
  run.evals = {{.step = 30, .loss = std::log(20.0), .loss_uncorrected = std::log(400.0)}};
  CHECK(value_of(run, "perplexity") == Approx(20));
  CHECK(value_of(run, "perplexity_uncorrected") == Approx(400));
}

TEST_CASE("the memory of an evaluation is not counted as training memory", "[study]") {
  Run run = small_run();
  run.train = {train_record(10, 3, 1), train_record(20, 2, 1), train_record(30, 1, 1)};
  run.train[2].memory.ranks[0].activations = 50000;
  CHECK(value_of(run, "peak_tensor_memory_bytes") == 50000 + 100 + 10 + 5 + 1);
  run.evals = {{.step = 20}};  // after the record of step 20, in the interval of the next one
  CHECK(value_of(run, "peak_tensor_memory_bytes") == 900 + 300 + 20 + 5 + 2);
  run.evals = {{.step = 5}, {.step = 10}, {.step = 25}};  // in every interval
  CHECK(value_of(run, "peak_tensor_memory_bytes") == 50000 + 100 + 10 + 5 + 1);
}

TEST_CASE("medians", "[study]") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, NAN, 2, 3}) == 2.5);
  CHECK(std::isnan(median({NAN})));
}
