#include "cost/make_experiment.h"
#include "run/run_text.h"

#include <tuple>

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

}  // namespace sdp
