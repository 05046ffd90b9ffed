// What processes report to each other, and what a run says of it.

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "cost/make_experiment.h"
#include "engine/engine_cases.h"
#include "io/file.h"
#include "run/logging_interval.h"
#include "run/run_output.h"
#include "run/run_text.h"
#include "temp_folder.h"
#include "test_device.h"

using Catch::Matchers::Contains;

namespace sdp {
namespace {

TEST_CASE("reports and losses of all processes arrive bit by bit") {
  // As doubles: small ones are subnormal, 2^53 + 1 is none, and the last five are NaN, signaling or not, -0
  // and infinite.
  constexpr int64_t kNumbers[] = {0,
                                  1,
                                  (int64_t{1} << 53) + 1,
                                  INT64_MAX,
                                  -1,
                                  0x7FF0000000000001,
                                  INT64_MIN,
                                  0x7FF0000000000000,
                                  -0x0010000000000001};
  const int world = GENERATE(1, 2);
  const auto body = [&](Communicator& comm) {
    for (const int64_t number : kNumbers) {
      const at::Tensor losses = at::tensor(std::vector<double>{1.5 + comm.rank(), std::nan("")}, at::kDouble);
      const GatheredReports all = gather(
          comm, {.save_is_due = number ^ comm.rank(), .waited_ms = 0.1 * comm.rank(), .counted = number},
          losses.to(comm.device()));
      expect(all.processes.size() == static_cast<size_t>(world), "processes");
      expect(all.losses.size() == 2 * all.processes.size(), "losses");
      for (size_t rank = 0; rank < all.processes.size(); ++rank) {
        const ProcessReport& report = all.processes[rank];
        expect(report.save_is_due == (number ^ static_cast<int64_t>(rank)), "first number");
        expect(report.counted == number, "last number");
        expect(report.waited_ms == 0.1 * static_cast<double>(rank), "time");
        expect(all.losses[2 * rank] == 1.5 + static_cast<double>(rank), "loss");
        expect(std::isnan(all.losses[2 * rank + 1]), "second loss");
      }
    }
  };
  run_thread_ranks(world, body, Exchanges::kAtOnce, test_device());
}

int64_t number_of(int64_t worker, int64_t replica, int64_t micro_batch, int64_t sample) {
  return ((worker * 10 + replica) * 10 + micro_batch) * 10 + sample;
}

TEST_CASE("the trace names every worker's samples, in the order of its micro-batches") {
  struct Shape {
    int64_t processes, workers, replicas, micro_batches, batch_size;
  };
  for (const Shape& shape : {Shape{1, 3, 1, 4, 1}, Shape{1, 2, 2, 3, 1}, Shape{2, 4, 1, 2, 1},
                             Shape{1, 4, 1, 2, 3}, Shape{2, 2, 1, 5, 2}, Shape{4, 2, 2, 3, 1}}) {
    CAPTURE(shape.processes, shape.workers, shape.replicas, shape.micro_batches, shape.batch_size);
    ExperimentSpec spec = spec_of(Case{.workers = shape.workers,
                                       .replicas = shape.replicas,
                                       .coverage = "1",
                                       .accumulate_steps = shape.micro_batches,
                                       .model = "mlp"});
    spec.train.batch_size_per_worker = shape.batch_size;
    const Experiment experiment = make_experiment(spec, shape.processes);
    const TempFolder folder;
    const RunFolder run{folder.path()};
    run_thread_ranks(static_cast<int>(shape.processes), [&](Communicator& comm) {
      const std::vector<Slot> slots = experiment.exchanges.slot_map.slots_of(comm.rank());
      std::vector<int64_t> samples;
      for (int64_t micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
        for (const Slot& slot : slots)
          for (int64_t i = 0; i < shape.batch_size; ++i)
            samples.push_back(number_of(slot.worker, slot.replica, micro_batch, i));
      StepTrace trace(experiment, run, comm);
      trace.append(/*step=*/6, at::zeros({static_cast<int64_t>(slots.size())}, at::kDouble), samples);
    });
    std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> found, expected;  // by worker and replica
    for_each_line(run.trace(), [&](int64_t, const std::string& line, bool) {
      const auto json = nlohmann::json::parse(line);
      CHECK(json["step"] == 7);
      found[{json["worker"], json["replica"]}] = json["samples"].get<std::vector<int64_t>>();
    });
    for (int64_t worker = 0; worker < shape.workers; ++worker)
      for (int64_t replica = 0; replica < shape.replicas; ++replica)
        for (int64_t n = 0; n < shape.micro_batches * shape.batch_size; ++n)
          expected[{worker, replica}].push_back(
              number_of(worker, replica, n / shape.batch_size, n % shape.batch_size));
    CHECK(found == expected);
  }
}

TEST_CASE("slow data causes a warning from a fifth of a step on") {
  DataSpec data;
  data.loader_threads = 3;
  data.prefetch_batches = 7;
  CHECK_FALSE(slow_data_warning(100, 19.9, data));
  const auto warning = slow_data_warning(100, 20, data);
  REQUIRE(warning);
  for (const char* part : {"100.0 ms", "20.0 ms", "data.loader_threads (3)", "data.prefetch_batches (7)"})
    CHECK_THAT(*warning, Contains(part));
}

TEST_CASE("the tokens of a run whose batch changed are those that it reads") {
  ExperimentSpec spec;
  spec.model.kind = LlamaSpec{.width = 32, .depth = 2, .hidden_width = 64, .heads = 4, .vocab_size = 257};
  resolve_model(spec.model);
  spec.data.set = TokensSpec{.sequence_length = 64};
  spec.subnetwork.workers = 4;
  spec.subnetwork.coverage.text = "1";
  spec.train.batch_size_per_worker = 2;
  spec.train.max_steps = 1100;
  const Experiment experiment = make_experiment(spec, 4);
  // 512 tokens per step; before the origin samples of 64 tokens were read in steps of other sizes.
  for (const auto& [step, samples, text] : {std::tuple(0, 0, ", 563 k tokens"),
                                            {100, 1, ", 512 k tokens"},
                                            {100, 3200, ", 717 k tokens"},
                                            {1000, 48000, ", 3.12 M tokens"}})
    CHECK_THAT(describe_length(experiment, run_steps(experiment, 100000, {.step = step, .samples = samples})),
               Contains(text));
}

TEST_CASE("an evaluation in words") {
  EvalRecord record{.step = 7, .loss = 1.25, .accuracy = 0.5, .samples = 40, .test_samples = 40};
  CHECK_THAT(describe(record), Contains("accuracy 50") && Contains("loss 1.25") && !Contains("without"));
  record.loss_uncorrected = 3;
  record.accuracy_uncorrected = 0.25;
  record.recalibrated_batches = 20;
  record.branch_scale = 0.5;
  record.branch_scale_trial =
      BranchScaleTrial{.samples = 800, .loss_none = 1.75, .loss_survival = 1.5, .standard_error = 0.1};
  record.subnetwork_loss = {1.5, 1.125};
  record.subnetwork_accuracy = {0.375, 0.4375};
  record.subnetwork_standard_error = {0.01, 0.02};
  record.subnetwork_samples = 10;
  record.loss_on_subnetwork_samples = 1.375;
  record.accuracy_on_subnetwork_samples = 0.4375;
  for (const char* part :
       {"branch scale 0.5: 25", "3.0000", "37.50 %", "43.75 %", "1.1250", "800 training samples"})
    CHECK_THAT(describe(record), Contains(part));
  const auto is_better = [&] { return describe(record).find("is better than") != std::string::npos; };
  CHECK_FALSE(is_better());                         // as accurate as the assembled model on the same samples
  record.accuracy_on_subnetwork_samples = 0.40625;  // images are compared by accuracy
  CHECK(is_better());
  record.subnetwork_standard_error[1] = 0.03125;
  CHECK_FALSE(is_better());
  record.tokens = 400;  // tokens by loss
  CHECK(is_better());
  record.subnetwork_standard_error[1] = 0.26;
  CHECK_FALSE(is_better());
  record.subnetwork_standard_error[1] = 0;
  record.subnetwork_loss[1] = 1.375;
  CHECK_FALSE(is_better());
}

}  // namespace
}  // namespace sdp
