#include "experiment/spec/resume.h"
#include "catch.h"
#include "spec/error.h"

using namespace sdp;

TEST_CASE("an unchanged spec, or one with changes only to where it runs, resumes without a message") {
  const ExperimentSpec saved;
  CHECK(check_resumable(saved, saved).empty());
  ExperimentSpec now = saved;
  now.data.path = "/elsewhere";
  now.train.device = DeviceKind::kCpu;
  now.train.backend = BackendKind::kGloo;
  now.train.log_every_steps = 1;
  now.checkpoint.keep_last = 7;
  now.eval.branch_scale = BranchScale::kSurvival;
  now.optimizer.shard = false;
  now.subnetwork.placement = NodePlacement::kPack;
  CHECK(check_resumable(saved, now).empty());
}

TEST_CASE("changes to the rest of the run are named") {
  const ExperimentSpec saved;
  ExperimentSpec now = saved;
  now.optimizer.rule = SgdSpec{.lr = 0.5};
  now.train.max_steps = 100;
  const std::vector<std::string> warnings = check_resumable(saved, now);
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].starts_with("optimizer.lr (was 0.1, now 0.5)"));
  CHECK(warnings[1].starts_with("train.max_steps (was null, now 100)"));
}

TEST_CASE("changes to keys that the saved state depends on are refused, each key by name") {
  const auto refused = [](auto change) {
    ExperimentSpec now;
    change(now);
    try {
      check_resumable(ExperimentSpec(), now);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using Catch::Matchers::Contains;
  CHECK_THAT(refused([](ExperimentSpec& s) { s.seed = 9; }), Contains("seed (was 0, now 9)"));
  CHECK_THAT(refused([](ExperimentSpec& s) { s.model.kind.as<ResNetSpec>().width = 8; }),
             Contains("model.width (was null, now 8)"));
  CHECK_THAT(refused([](ExperimentSpec& s) { s.model.kind = LlamaSpec(); }),
             Contains(" model.name (was resnet18, now llama_tiny). "));
  CHECK_THAT(refused([](ExperimentSpec& s) { s.optimizer.rule = AdamWSpec(); }),
             Contains("optimizer.name (was sgd, now adamw)"));
  CHECK_THAT(refused([](ExperimentSpec& s) {
               s.seed = 1;
               s.data.validation_share = 0.5;
             }),
             Contains("seed (was 0, now 1), data.validation_share (was 0, now 0.5)"));
}

TEST_CASE("the division, the batch and how samples are computed may change, each key by name") {
  const ExperimentSpec saved;
  ExperimentSpec now = saved;
  now.subnetwork = {.workers = 6,
                    .replicas = 2,
                    .coverage = {"3/6"},
                    .construction = Construction::kNeuron,
                    .masking = Masking::kBackward,
                    .unit = UnitKind::kBranch,
                    .slices_per_branch = 3,
                    .assignment = Assignment::kFile,
                    .assignment_file = "plan.json"};
  now.train.batch_size_per_worker = 1;
  now.train.accumulate_steps = 2;
  now.train.precision = Precision::kBf16;
  now.data.augment = std::vector<Augmentation>{};
  now.data.mixup_alpha = 0.1;
  now.data.cutmix_alpha = 0.1;
  CHECK_FALSE(is_same_division(saved.subnetwork, now.subnetwork));
  const std::vector<std::string> warnings = check_resumable(saved, now);
  CHECK(warnings.size() == 9 + 2 + 1 + 3 + 1);  // the last one: the learning rate is still that of the batch
  CHECK_THAT(warnings.back(), Catch::Matchers::Contains("optimizer.lr"));
  now.optimizer.rule = SgdSpec{.lr = 0.01};
  CHECK(check_resumable(saved, now).size() == 9 + 2 + 1 + 3 + 1);  // its change instead

  ExperimentSpec same_batch = saved;
  same_batch.train.batch_size_per_worker = saved.train.batch_size_per_worker / 4;
  same_batch.subnetwork.workers = 2;
  same_batch.subnetwork.replicas = 2;
  CHECK(check_resumable(saved, same_batch).size() == 3);
  same_batch.subnetwork = saved.subnetwork;
  same_batch.subnetwork.replicas = 4;
  same_batch.subnetwork.placement = NodePlacement::kSpread;
  CHECK(is_same_division(saved.subnetwork, same_batch.subnetwork));
}

TEST_CASE("a resumed run keeps its length, unless an override shortens it") {
  ExperimentSpec saved;
  saved.train.max_steps = 100;
  const auto resumed = [&](LengthFrom from, std::optional<int64_t> max_steps) {
    ExperimentSpec now;
    now.train.max_steps = max_steps;
    keep_length(saved, now, from);
    return now.train.max_steps;
  };
  CHECK(resumed(LengthFrom::kDefault, std::nullopt) == 100);
  CHECK(resumed(LengthFrom::kFile, 200) == 200);
  CHECK(resumed(LengthFrom::kOverride, 50) == 50);
  CHECK_THROWS_AS(resumed(LengthFrom::kFile, 50), UsageError);
  CHECK(resumed(LengthFrom::kFile, std::nullopt) == std::nullopt);  // in epochs, which cannot be compared
  saved.train.max_steps = std::nullopt;
  saved.train.epochs = 20;
  ExperimentSpec shorter;
  shorter.train.epochs = 10;
  CHECK_THROWS_AS(keep_length(saved, shorter, LengthFrom::kFile), UsageError);
  keep_length(saved, shorter, LengthFrom::kDefault);
  CHECK(shorter.train.epochs == 20);
}

TEST_CASE("where the length of a run is set") {
  const auto from = [](const std::string& rest, const std::vector<std::string>& overrides = {}) {
    return parse_spec("name: test\ndata: {path: .}\n" + rest, "x.yaml", overrides).length_from;
  };
  CHECK(from("") == LengthFrom::kDefault);
  CHECK(from("train: {epochs: 3}") == LengthFrom::kFile);
  CHECK(from("", {"train.max_steps=3"}) == LengthFrom::kOverride);
  CHECK(from("train: {epochs: 3}", {"train.max_steps=3"}) == LengthFrom::kOverride);
  CHECK(from("train: {max_steps: 3}", {"train.max_steps=null"}) == LengthFrom::kDefault);
}
