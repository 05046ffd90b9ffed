#include "experiment/make_experiment.h"
#include "train/run_text.h"

#include <string>
#include <tuple>
#include <vector>

#include "catch.h"

using Catch::Matchers::Contains;

namespace sdp {

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
  const std::vector<std::tuple<int64_t, int64_t, std::string>> cases = {{0, 0, ", 563 k tokens"},
                                                                        {100, 1, ", 512 k tokens"},
                                                                        {100, 3200, ", 717 k tokens"},
                                                                        {600, 150, ", 266 k tokens"},
                                                                        {1000, 48000, ", 3.12 M tokens"}};
  for (const auto& [step, samples, text] : cases)
    CHECK_THAT(describe_length(experiment, run_steps(experiment, 100000, {.step = step, .samples = samples})),
               Contains(text));
}

TEST_CASE("an evaluation in words") {
  EvalRecord record{.step = 7, .loss = 1.25, .accuracy = 0.5, .samples = 40, .test_samples = 40};
  const std::string plain = describe(record);
  CHECK_THAT(plain, Contains("accuracy 50") && Contains("loss 1.25") && !Contains("without") &&
                        !Contains("is better than"));
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
  for (const char* part : {"without BatchNorm recalibration and branch scale 0.5: 25", "3.0000", "37.50 %",
                           "43.75 %", "1.1250", "1.5000", "800 training samples"})
    CHECK_THAT(describe(record), Contains(part));
  CHECK_THAT(describe(record),
             !Contains("is better than"));  // as accurate as the assembled model on the same samples
  SECTION("a trial that keeps branch scale 1 corrects nothing") {
    record.recalibrated_batches = 0;
    record.branch_scale = 1;
    CHECK_THAT(describe(record), !Contains("without") && Contains("800 training samples"));
  }
  SECTION("images are compared by accuracy") {
    record.accuracy_on_subnetwork_samples = 0.40625;
    CHECK_THAT(describe(record),
               Contains("worker 1") && Contains("is better than") && Contains("40.62 % on the same"));
    for (const double within : {0.03125, 0.04, 1.0}) {
      record.subnetwork_standard_error = {0, within};
      CHECK_THAT(describe(record), !Contains("is better than"));
    }
  }
  SECTION("tokens are compared by loss") {
    record.tokens = 400;
    CHECK_THAT(describe(record),
               Contains("worker 1") && Contains("is better than") && Contains("1.3750 on the same"));
    record.subnetwork_standard_error[1] = 0.26;
    CHECK_THAT(describe(record), !Contains("is better than"));
    record.subnetwork_standard_error[1] = 0;
    record.subnetwork_loss[1] = 1.375;
    CHECK_THAT(describe(record), !Contains("is better than"));
  }
}

}  // namespace sdp
