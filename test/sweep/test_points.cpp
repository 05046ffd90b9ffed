#include "catch.h"
#include "message_of.h"
#include "spec/error.h"
#include "sweep/points.h"

using namespace sdp;

namespace {

std::vector<SweepPoint> points_of(const std::string& text) {
  return expand(parse_sweep(text, "folder/x.yaml"));
}

std::vector<std::string> names_of_points(const std::string& text) {
  std::vector<std::string> names;
  for (const SweepPoint& point : points_of(text))
    names.push_back(point.name);
  return names;
}

using Strings = std::vector<std::string>;
using Paths = std::vector<std::filesystem::path>;
using Values = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kSweep = R"(
name: coverage
configs: [../base.yaml, more.yaml]
set: {train.epochs: 2, model: {width: 16}}
grid:
  regime:
    B: {subnetwork.construction: block}
    N: {subnetwork.construction: neuron, configs: [neuron.yaml]}
  subnetwork.coverage: [6/8, 1]
  seed: [0, 1]
also:
  - {label: "narrow, equal memory", set: {subnetwork.coverage: 1, model.width: 11}, across: [seed]}
  - {label: DDP, configs: [ddp.yaml], set: {optimizer.shard: false}}
exclude:
  - {regime: N, subnetwork.coverage: [1]}
)";

}  // namespace

TEST_CASE("a grid's first axis varies slowest, and additions come after the grid") {
  CHECK(names_of_points(kSweep) ==
        Strings{"regime=B,coverage=6-8,seed=0", "regime=B,coverage=6-8,seed=1", "regime=B,coverage=1,seed=0",
                "regime=B,coverage=1,seed=1", "regime=N,coverage=6-8,seed=0", "regime=N,coverage=6-8,seed=1",
                "narrow-equal-memory,seed=0", "narrow-equal-memory,seed=1", "DDP"});
}

TEST_CASE(
    "a point has the files and settings of all points, then those of its values, then of its addition") {
  const std::vector<SweepPoint> points = points_of(kSweep);
  CHECK(points[5] ==
        SweepPoint{.name = "regime=N,coverage=6-8,seed=1",
                   .label = "N, coverage=6/8",
                   .configs = Paths{"base.yaml", "folder/more.yaml", "folder/neuron.yaml"},
                   .overrides = Strings{"train.epochs=2", "model.width=16", "subnetwork.construction=neuron",
                                        "subnetwork.coverage=6/8", "seed=1"},
                   .values = Values{{"regime", "N"}, {"subnetwork.coverage", "6/8"}, {"seed", "1"}}});
  CHECK(points[6] == SweepPoint{.name = "narrow-equal-memory,seed=0",
                                .label = "narrow, equal memory",
                                .configs = Paths{"base.yaml", "folder/more.yaml"},
                                .overrides = Strings{"train.epochs=2", "model.width=16", "seed=0",
                                                     "subnetwork.coverage=1", "model.width=11"},
                                .values = Values{{"subnetwork.coverage", "1"}, {"seed", "0"}}});
  CHECK(points[8].configs == Paths{"base.yaml", "folder/more.yaml", "folder/ddp.yaml"});
  CHECK(points[8].values.empty());
}

TEST_CASE("values keep their meaning on the command line") {
  const auto override_of = [](const std::string& value) {
    return points_of("name: x\nconfigs: [e.yaml]\ngrid: {seed: [0]}\nset: {" + value + "}\n")
        .front()
        .overrides.front();
  };
  CHECK(override_of("data.augment: [crop, flip]") == "data.augment=[crop, flip]");
  CHECK(override_of("data.augment: []") == "data.augment=[]");
  CHECK(override_of("model.width: null") == "model.width=null");
  CHECK(override_of("optimizer.lr: 5e-4") == "optimizer.lr=5e-4");
  CHECK(override_of("data.path: \"7\"") == "data.path=\"7\"");
  CHECK(override_of("data.path: 'a, b: #c'") == "data.path=\"a, b: #c\"");
  CHECK(override_of("schedule: {milestones: [0.5, 0.75]}") == "schedule.milestones=[0.5, 0.75]");
}

TEST_CASE("axes with the same last word keep their full names") {
  CHECK(
      names_of_points(
          "name: x\ngrid: {model.name: [mlp], optimizer.name: [sgd, adamw], data.augment: [[], [crop]]}\n") ==
      Strings{"model.name=mlp,optimizer.name=sgd,augment=", "model.name=mlp,optimizer.name=sgd,augment=crop",
              "model.name=mlp,optimizer.name=adamw,augment=",
              "model.name=mlp,optimizer.name=adamw,augment=crop"});
}

TEST_CASE("additions without a grid are a sweep, and runs of a single axis `seed` share a label") {
  CHECK(names_of_points("name: x\nalso: [{label: a}, {label: b}]\n") == Strings{"a", "b"});
  for (const SweepPoint& point : points_of("name: x\ngrid: {seed: [0, 1]}\n"))
    CHECK(point.label == "x");
}

TEST_CASE("indistinguishable points, and exclusions of nothing or of everything, are refused") {
  const auto error = [](const std::string& text) { return message_of<UsageError>([&] { points_of(text); }); };
  using Catch::Matchers::Contains;
  CHECK_THAT(error("name: x\nalso: [{label: a b}, {label: a/b}]\n"),
             Contains("the name a-b: \"a b\" and \"a/b\""));
  CHECK_THAT(error("name: x\ngrid: {seed: [0, 1]}\nalso: [{label: seed=1}, {label: seed 1}]\n"),
             Contains("the name seed-1"));
  CHECK(error("name: x\ngrid: {seed: [0, 1], model.depth: [1, 2]}\nexclude: [{seed: 1}, {seed: 1, "
              "model.depth: 2}]\n")
            .starts_with("folder/x.yaml:3:22: exclude: excludes no point"));
  CHECK_THAT(error("name: x\ngrid: {seed: [0, 1]}\nexclude: [{seed: [0, 1]}]\n"), Contains("no point"));
}
