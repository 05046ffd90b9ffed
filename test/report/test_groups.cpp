#include <cmath>

#include "catch.h"
#include "report/groups.h"
#include "small_runs.h"

using namespace sdp;

namespace {

std::vector<std::string> labels_of(std::vector<Run> runs) {
  std::vector<std::string> labels;
  for (const Group& group : group_runs(std::move(runs)))
    labels.push_back(group.label);
  return labels;
}

using Labels = std::vector<std::string>;

}  // namespace

TEST_CASE("sample statistics", "[study]") {
  const Statistic four = statistic({2, 4, 4, 6});
  CHECK(four.mean == 4);
  CHECK(four.std == Approx(std::sqrt(8.0 / 3)));
  CHECK(four.count == 4);
  const Statistic one = statistic({NAN, 3});
  CHECK(one.mean == 3);
  CHECK(std::isnan(one.std));
  CHECK(one.count == 1);
  CHECK(std::isnan(statistic({}).mean));
}

TEST_CASE("runs that differ only in seed, name and output belong to one group", "[study]") {
  Run a = small_run(0), b = small_run(1), c = small_run(2);
  b.spec.name = "other";
  b.spec.output.dir = "elsewhere";
  b.spec.checkpoint.keep_last = 7;
  b.spec.subnetwork.coverage.text = "0.5";
  c.spec.optimizer.rule = SgdSpec{.lr = 0.5};
  const std::vector<Group> groups = group_runs({a, c, b});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].label == "B-SDP 2/4, lr 0.1");
  CHECK(groups[0].runs.size() == 2);
  CHECK(groups[0].coverage == "2/4");
  CHECK(groups[0].unfinished() == 2);
  CHECK(groups[1].label == "B-SDP 2/4, lr 0.5");
}

TEST_CASE("runs from different initial weights belong to different groups", "[study]") {
  Run scratch = small_run(0), a = small_run(1), b = small_run(2), same = small_run(3);
  a.history.imported = {.path = "a.safetensors", .bytes = 5, .xxh3_128 = "0123456789abcdef"};
  same.history.imported = {.path = "elsewhere/a.safetensors", .bytes = 5, .xxh3_128 = "0123456789abcdef"};
  b.history.imported = {.path = "a.safetensors", .bytes = 5, .xxh3_128 = "ff23456789abcdef"};
  CHECK(labels_of({scratch, a, same, b}) ==
        Labels{"B-SDP 2/4, from scratch", "B-SDP 2/4, imported 01234567", "B-SDP 2/4, imported ff234567"});
  CHECK(labels_of({a, same}) == Labels{"B-SDP 2/4"});
  for (Run* run : {&scratch, &a})
    run->sweep_label = "mine";
  CHECK(labels_of({scratch, a}) == Labels{"mine, from scratch", "mine, imported 01234567"});
}

TEST_CASE("runs whose spec changed during training form a separate group", "[study]") {
  Run plain = small_run(0), changed = small_run(1), same = small_run(2), later = small_run(3);
  for (Run* run : {&changed, &same, &later}) {
    run->train = {train_record(25, 1, 1)};
    run->spec.optimizer.rule = SgdSpec{.lr = 0.01};
    run->history.changes = {{.step = 10, .key = "optimizer.lr", .was = "0.5", .now = "0.02"},
                            {.step = 20, .key = "optimizer.lr", .was = "0.02", .now = "0.01"},
                            {.step = 20, .key = "output.dir", .was = "\"runs\"", .now = "\"elsewhere\""}};
  }
  later.history.changes[1].step = 21;
  const std::vector<Group> groups = group_runs({plain, changed, same, later});
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].label == "B-SDP 2/4, lr 0.1");
  CHECK(groups[0].changes.empty());
  CHECK(groups[1].label == "B-SDP 2/4, lr 0.5, 0.02 from step 10, 0.01 from step 20");
  CHECK(groups[1].runs.size() == 2);
  CHECK(groups[1].changes == Labels{"optimizer.lr 0.5, 0.02 from step 10, 0.01 from step 20"});
  CHECK(groups[2].label == "B-SDP 2/4, lr 0.5, 0.02 from step 10, 0.01 from step 21");
  CHECK(labels_of({changed}) == Labels{groups[1].label});  // also without other runs
  for (Run* run : {&plain, &changed})
    run->sweep_label = "mine";
  CHECK(labels_of({plain, changed}) == Labels{"mine", "mine, lr 0.5, 0.02 from step 10, 0.01 from step 20"});

  changed.sweep_label = plain.sweep_label = "";

  // Nothing has been trained with the new value yet, or the training data have changed since.
  changed.history.changes = {{.step = 25, .key = "optimizer.lr", .was = "0.1", .now = "0.01"}};
  CHECK(group_runs({plain, changed}).size() == 1);
  changed.history.changes = {{.step = 5, .key = "training_data", .was = "aa", .now = "bb"}};
  CHECK(labels_of({changed}) == Labels{"B-SDP 2/4, training_data aa, bb from step 5"});
}

TEST_CASE("a data set is identified by the contents of its files, wherever they are", "[study]") {
  Run a = small_run(0), copy = small_run(1), other = small_run(2), old = small_run(3);
  for (Run* run : {&a, &copy, &other}) {
    run->history.training_data = {.samples = 9, .hash = "aa"};
    run->history.test_data = {.samples = 3, .hash = "bb"};
  }
  a.spec.data.path = old.spec.data.path = "here";  // the old run does not say what it read
  copy.spec.data.path = other.spec.data.path = "there";
  other.history.training_data.hash = "cc";
  const std::vector<Group> groups = group_runs({a, other, copy, old});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].label == "B-SDP 2/4");
  CHECK(groups[0].data_set == "cifar10 in here");
  CHECK(groups[0].runs.size() == 3);
  CHECK(groups[1].label == "B-SDP 2/4");
  CHECK(groups[1].data_set == "cifar10 in there");
  CHECK(group_runs({a})[0].data_set == "cifar10");
  other.spec.data.path = "here";
  CHECK(group_runs({a, other})[1].data_set == "cifar10 cc");
  other.spec.data.set = TokensSpec();
  CHECK(group_runs({a, other})[1].data_set == "tokens");
}

TEST_CASE("groups are named after their differences", "[study]") {
  Run base = small_run(), other = small_run(), dense = small_run(0, 4);
  CHECK(labels_of({base}) == Labels{"B-SDP 2/4"});
  CHECK(labels_of({base, dense}) == Labels{"B-SDP 2/4", "ZeRO-2"});
  other.spec.model.kind.as<ResNetSpec>().width = 8;
  AdamWSpec adamw;
  adamw.lr = 0.1;
  adamw.weight_decay = 5e-4;
  adamw.decay_norms_and_biases = true;
  other.spec.optimizer.rule = adamw;
  other.spec.train.budget = Budget::kFlops;
  CHECK(labels_of({base, other, dense}) == Labels{"B-SDP 2/4, width null, sgd, budget epochs",
                                                  "B-SDP 2/4, width 8, adamw, budget flops",
                                                  "ZeRO-2, width null, sgd, budget epochs"});
  // Two keys with the same last part are given in full.
  other = small_run();
  other.spec.subnetwork.placement = NodePlacement::kPack;
  other.spec.eval.batch_size = 5;
  other.spec.train.epochs = 3;
  other.spec.schedule.warmup_epochs = 3;
  CHECK(labels_of({base, other})[1] == "B-SDP 2/4, placement pack, warmup_epochs 3, epochs 3, batch_size 5");
}

TEST_CASE("settings that follow from the regime are named only between runs of one regime", "[study]") {
  Run base = small_run(), dense = small_run(0, 4), other = small_run();
  base.spec.eval.recalibrate_batches = 100;
  base.spec.eval.branch_scale = BranchScale::kSurvival;
  dense.spec.eval.recalibrate_batches = 0;
  dense.spec.optimizer.shard = false;
  CHECK(labels_of({base, dense}) == Labels{"B-SDP 2/4", "DDP"});
  other.spec.eval = base.spec.eval;
  other.spec.eval.recalibrate_batches = 50;
  CHECK(labels_of({base, dense, other})[2] == "B-SDP 2/4, recalibrate_batches 50");
  other = base;
  other.plan.processes = 4;
  CHECK(labels_of({base, dense, other}) ==
        Labels{"B-SDP 2/4, processes 2", "DDP, processes 2", "B-SDP 2/4, processes 4"});
}

TEST_CASE("groups that differ only in their budget share a label without the budget", "[study]") {
  Run a = small_run(0), b = small_run(0), c = small_run(1, 1);
  a.spec.train.max_steps = b.spec.train.max_steps = std::nullopt;
  a.spec.train.epochs = 20;
  b.spec.train.epochs = 60;
  b.spec.train.log_every_steps = 3 * a.spec.train.log_every_steps;  // of longer runs, fewer lines per step
  const auto any_budget_of = [](std::vector<Run> runs) {
    std::vector<std::string> labels;
    for (const Group& group : group_runs(std::move(runs)))
      labels.push_back(group.any_budget_label);
    return labels;
  };
  CHECK(any_budget_of({a, b, c}) == Labels{"B-SDP 2/4", "B-SDP 2/4", "B-SDP 1/4"});
  b.spec.optimizer.rule = SgdSpec{.lr = 0.5};
  CHECK(any_budget_of({a, b}) == Labels{"B-SDP 2/4, lr 0.1", "B-SDP 2/4, lr 0.5"});
  // Several sweeps, each with another budget and the same labels.
  b.spec.optimizer = a.spec.optimizer;
  a.sweep_label = b.sweep_label = "half";
  CHECK(labels_of({a, b}) == Labels{"half, epochs 20", "half, epochs 60"});
  CHECK(any_budget_of({a, b}) == Labels{"half", "half"});
}

TEST_CASE("labels of a sweep take precedence", "[study]") {
  Run a = small_run(0), b = small_run(1), c = small_run(0, 4), d = small_run(0, 1);
  a.sweep_label = b.sweep_label = c.sweep_label = "mine";
  d.sweep_label = "";
  CHECK(labels_of({a, b, c, d}) == Labels{"mine", "mine #2", "B-SDP 1/4"});
  b.sweep_label = "seed 1";
  CHECK(labels_of({a, b})[0] == "B-SDP 2/4");
}
