#include "experiment/resume.h"

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "spec_errors.h"

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

TEST_CASE("changes to keys that the saved state depends on are refused, each key by name") {
  using Spec = ExperimentSpec;
  for (const auto& [change, named] : std::vector<std::pair<void (*)(Spec&), const char*>>{
           {[](Spec& s) { s.model.kind.as<ResNetSpec>().width = 8; }, "model.width (was null, now 8)"},
           {[](Spec& s) { s.model.kind = LlamaSpec(); }, " model.name (was resnet18, now llama_tiny). "},
           {[](Spec& s) { s.optimizer.rule = AdamWSpec(); }, "optimizer.name (was sgd, now adamw)"},
           {[](Spec& s) { s.seed = 1, s.data.validation_share = 0.5; },
            "seed (was 0, now 1), data.validation_share (was 0, now 0.5)"}}) {
    Spec now;
    change(now);
    CHECK(contains(message_of<UsageError>([&] { check_resumable(Spec(), now); }), named));
  }
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
  CHECK(contains(warnings.back(), "optimizer.lr"));
  now.optimizer.rule = SgdSpec{.lr = 0.01};
  CHECK(check_resumable(saved, now).size() == 9 + 2 + 1 + 3 + 1);  // its change instead

  ExperimentSpec same_batch = saved;
  same_batch.train.batch_size_per_worker = saved.train.batch_size_per_worker / 4;
  same_batch.subnetwork.workers = 2;
  same_batch.subnetwork.replicas = 2;
  CHECK(check_resumable(saved, same_batch).size() == 3);
  same_batch.subnetwork = saved.subnetwork;
  same_batch.subnetwork.replicas = 4;
  same_batch.subnetwork.placement = NodePlacement::kPack;
  CHECK(is_same_division(saved.subnetwork, same_batch.subnetwork));
}

TEST_CASE("defaults that follow from other keys are no changes, whether set or not; what is set counts") {
  const std::string tokens = "data: {name: tokens, path: .}\nmodel: {name: llama_tiny}\n";
  using Keys = std::vector<std::string>;
  for (const auto& [before, after, keys] :
       {std::tuple{tokens + "subnetwork: {workers: 4}", tokens + "subnetwork: {workers: 2}",
                   Keys{"subnetwork.workers"}},
        {tokens + "train: {batch_size_per_worker: 2}", tokens + "train: {accumulate_steps: 3}",
         Keys{"train.batch_size_per_worker", "train.accumulate_steps"}},
        {"subnetwork: {workers: 4, coverage: 1}", "subnetwork: {workers: 4, coverage: 2/4}",
         Keys{"subnetwork.coverage"}},
        {tokens + "eval: {max_samples: 7}", tokens + "eval: {max_samples: 9}", Keys{"eval.max_samples"}},
        {"", "eval: {recalibrate_batches: 3, max_samples: 5}",
         Keys{"eval.recalibrate_batches", "eval.max_samples"}},
        {tokens + "eval: {max_samples_per_subnetwork: 0}", tokens,
         Keys{"eval.max_samples_per_subnetwork"}}}) {
    Keys changed;
    for (const SpecChange& change : changes_between(load(before), load(after)))
      changed.push_back(change.key);
    CHECK(changed == keys);
  }
}

TEST_CASE("a resumed run keeps its length, unless an override shortens it") {
  const auto resumed = [](LengthFrom from, std::optional<int64_t> max_steps) {
    ExperimentSpec saved, now;
    saved.train.max_steps = 100;
    now.train.max_steps = max_steps;
    keep_length(saved, now, from);
    return now.train.max_steps;
  };
  CHECK(resumed(LengthFrom::kDefault, std::nullopt) == 100);
  CHECK(resumed(LengthFrom::kFile, 200) == 200);
  CHECK(resumed(LengthFrom::kOverride, 50) == 50);
  CHECK_THROWS_AS(resumed(LengthFrom::kFile, 50), UsageError);
  CHECK(resumed(LengthFrom::kFile, std::nullopt) == std::nullopt);  // in epochs, which cannot be compared
  ExperimentSpec saved, shorter;
  saved.train.epochs = 20;
  shorter.train.epochs = 10;
  CHECK_THROWS_AS(keep_length(saved, shorter, LengthFrom::kFile), UsageError);
  keep_length(saved, shorter, LengthFrom::kDefault);
  CHECK(shorter.train.epochs == 20);

  // Where the length is set.
  const auto from = [](const std::string& rest, const std::vector<std::string>& overrides = {}) {
    return load_with(rest, overrides).length_from;
  };
  CHECK(from("") == LengthFrom::kDefault);
  CHECK(from("train: {epochs: 3}") == LengthFrom::kFile);
  CHECK(from("", {"train.max_steps=3"}) == LengthFrom::kOverride);
  CHECK(from("train: {epochs: 3}", {"train.max_steps=3"}) == LengthFrom::kOverride);
  CHECK(from("train: {max_steps: 3}", {"train.max_steps=null"}) == LengthFrom::kDefault);
}
