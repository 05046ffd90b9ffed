// The decision of a plan in typical situations, each given by the figures of its methods.

#include "catch.h"
#include "forecast/verdict.h"

namespace sdp {
namespace {

struct Situation {
  double plan_gigabytes, ddp_gigabytes, fsdp_gigabytes;
  double plan_ms = 60, ddp_ms = 100, fsdp_ms = 120;
  double checkpointing_gigabytes = 0;  ///< of the plan; 0: not listed
  double coverage = 0.5;
  int64_t largest_batch = 0;

  Verdict on(double gigabytes) const {
    const auto method = [&](const std::string& name, double of_coverage, double size, double ms) {
      StepForecast forecast;
      forecast.name = name;
      forecast.coverage = forecast.flops_share = of_coverage;
      forecast.step_ms = ms;
      forecast.peak.weights = static_cast<int64_t>(size * 1e9);
      forecast.fits = size <= gigabytes;
      return forecast;
    };
    std::vector<StepForecast> methods = {method("this plan", coverage, plan_gigabytes, plan_ms),
                                         method("DDP", 1, ddp_gigabytes, ddp_ms),
                                         method("FSDP", 1, fsdp_gigabytes, fsdp_ms)};
    methods[0].largest_batch = largest_batch;
    methods[2].in_this_program = false;
    if (checkpointing_gigabytes > 0) {
      methods.push_back(method("this plan, checkpointing", coverage, checkpointing_gigabytes, 1.3 * plan_ms));
      methods.back().checkpoints = true;
    }
    return verdict_of(methods,
                      {.batch_size_per_worker = 8, .accumulate_steps = 3, .global_batch_samples = 24});
  }
};

TEST_CASE("where data parallelism fits, it is recommended") {
  const Verdict verdict = Situation{10, 20, 15}.on(80);
  CHECK(verdict.decision == Decision::kFullCoverage);
  CHECK(verdict.recommended == "DDP");
  CHECK(verdict.fit == std::vector<std::string>{"this plan", "DDP", "FSDP"});
  CHECK(verdict.fastest == "DDP");
  CHECK(verdict.changes.empty());
  CHECK(verdict.memory_share == 0.5);
  CHECK(verdict.time_at_equal_flops == 1.2);
}

TEST_CASE("the fastest method is told where it is another one") {
  const Verdict verdict =
      Situation{.plan_gigabytes = 10, .ddp_gigabytes = 20, .fsdp_gigabytes = 15, .plan_ms = 40}.on(80);
  CHECK(verdict.recommended == "DDP");
  CHECK(verdict.fastest == "this plan");
  CHECK(verdict.fastest_over_recommended == Approx(0.8));
}

TEST_CASE(
    "where only FSDP fits of the methods with the full model, it is recommended, with this program's "
    "choice") {
  const Verdict verdict = Situation{10, 20, 15}.on(16);
  CHECK(verdict.decision == Decision::kOtherProgram);
  CHECK(verdict.recommended == "FSDP");
  CHECK(verdict.recommended_here == "this plan");
}

TEST_CASE("where FSDP needs less memory than this plan with checkpointing, nothing of this program may fit") {
  const Verdict verdict =
      Situation{
          .plan_gigabytes = 10, .ddp_gigabytes = 20, .fsdp_gigabytes = 5, .checkpointing_gigabytes = 7.4}
          .on(6);
  CHECK(verdict.decision == Decision::kOtherProgram);
  CHECK(verdict.recommended == "FSDP");
  CHECK(verdict.recommended_here.empty());
  CHECK(verdict.changes == std::vector<std::string>{"a lower subnetwork.coverage"});
}

TEST_CASE("where only this plan fits, it is recommended") {
  const Verdict verdict = Situation{10, 20, 15}.on(12);
  CHECK(verdict.decision == Decision::kThisPlan);
  CHECK(verdict.fit == std::vector<std::string>{"this plan"});
}

TEST_CASE("where this plan fits only with checkpointing, both ways to make it fit are told") {
  const Verdict verdict = Situation{.plan_gigabytes = 10,
                                    .ddp_gigabytes = 20,
                                    .fsdp_gigabytes = 15,
                                    .checkpointing_gigabytes = 7,
                                    .largest_batch = 7}
                              .on(9);
  CHECK(verdict.decision == Decision::kThisPlanCheckpointing);
  CHECK(verdict.recommended == "this plan, checkpointing");
  // The same global batch: of 24 samples per worker, 6 at a time.
  CHECK(verdict.changes ==
        std::vector<std::string>{"train.checkpoint_activations: true",
                                 "train.batch_size_per_worker: 6 with train.accumulate_steps: 4"});
}

TEST_CASE("where nothing fits, the verdict says so") {
  const Verdict verdict =
      Situation{.plan_gigabytes = 10, .ddp_gigabytes = 20, .fsdp_gigabytes = 15, .largest_batch = 2}.on(3);
  CHECK(verdict.decision == Decision::kNothingFits);
  CHECK(verdict.recommended.empty());
  CHECK(verdict.fit.empty());
  CHECK(verdict.changes ==
        std::vector<std::string>{"train.batch_size_per_worker: 2 with train.accumulate_steps: 12"});
}

TEST_CASE("a plan of coverage 1 is the full model; of methods alike in time the first is recommended") {
  Situation full{
      .plan_gigabytes = 20, .ddp_gigabytes = 20, .fsdp_gigabytes = 15, .plan_ms = 101, .coverage = 1};
  CHECK(full.on(80).recommended == "this plan");
  CHECK(full.on(80).decision == Decision::kFullCoverage);
  full.plan_ms = 110;
  CHECK(full.on(80).recommended == "DDP");
}

}  // namespace
}  // namespace sdp
