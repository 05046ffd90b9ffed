#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <random>

#include "experiment/experiment_spec.h"
#include "experiment/load.h"
#include "optim/adamw.h"
#include "optim/sgd.h"
#include "spec/text.h"
#include "spec_errors.h"

namespace sdp {
namespace {

std::string file_error(const std::filesystem::path& file) {
  return message_of<UsageError>([&] { load_spec({file}, {}); });
}

TEST_CASE("values are read however YAML writes them, and unset keys have the values of the structs") {
  // Every key and value: print_test.cpp.
  const LoadedSpec loaded = parse_spec("\xef\xbb\xbf" + spec_with(R"(# a comment
seed: 9223372036854775807
model: {name: mlp, width: 8, depth: +3}
optimizer: {name: adamw, lr: 5e-4, beta1: 0, weight_decay: 0, shard: false}
schedule:
  name: step
  milestones:
    - 0.25
    - .5
eval: {recalibrate_batches: null}
output: {dir: "a: b~$/5$é"}
)"),
                                       "x.yaml");
  const ExperimentSpec& spec = loaded.spec;
  CHECK(loaded.warnings.empty());
  CHECK(spec.seed == INT64_MAX);
  CHECK(spec.model.kind.as<MlpSpec>().depth == 3);
  CHECK(spec.optimizer.rule.as<AdamWSpec>() == AdamWSpec{.lr = 5e-4, .weight_decay = 0, .beta1 = 0});
  CHECK_FALSE(spec.optimizer.shard);
  CHECK(spec.schedule.milestones == std::vector{0.25, 0.5});
  CHECK(spec.output.dir == "a: b~$/5$é");
  CHECK(spec.checkpoint == CheckpointSpec{});
  CHECK(spec.train == TrainSpec{});
}

TEST_CASE("all errors are reported at once, each with its place") {
  const std::string error = spec_error(
      "name: ../x\nlr: 1\nmodel: {name: lama, image_sizes: 9}\noptimizer: {lr: x, nesterov: true, momentum: "
      "0}\n"
      "train: {batch_size: 4, precision: fp16}\nsubnetwork: {workers: 3, coverage: 1/2}\nbatch: 3\n",
      {"optimizer=sgd", "seed=-1"});
  INFO(error);
  for (const char* place :
       {"x.yaml:1:7: name: ", "x.yaml:2:1: lr: ", "optimizer.lr",
        "x.yaml:3:15: model.name: ", "x.yaml:3:21: model.image_sizes: ", "'image_size'",
        "x.yaml:4:17: optimizer.lr: ", "x.yaml:5:9: train.batch_size: ", "'batch_size_per_worker'",
        "x.yaml:5:35: train.precision: ", "x.yaml:6:36: subnetwork.coverage: ", "x.yaml:7:1: batch: ",
        "data.path: ", "--set seed=-1: seed: ", "--set optimizer=sgd: optimizer: ", "12 errors"})
    CHECK(contains(error, place));
  // Contradictions that take part in another error, and checks of an unknown model, would mislead.
  for (const char* misleading : {"optimizer.nesterov", "width_multiplier", "data.name"})
    CHECK_FALSE(contains(error, misleading));
}

TEST_CASE("overrides come last, and are parsed as YAML or are as they were typed") {
  const auto spec = load_with("optimizer: {lr: 0.1, momentum: 0.5}\ntrain: {max_steps: 3}\n",
                              {"optimizer.lr=0.2", "data.augment=[]", "schedule.milestones=[0.1, 0.2]",
                               "model={name: mlp, width: 5}", "train.max_steps=null", "name=b",
                               "output.dir=x=y", "schedule={name: step}", "optimizer.lr=0.3"})
                        .spec;
  CHECK(spec.optimizer.lr() == 0.3);
  CHECK(spec.optimizer.rule.as<SgdSpec>().momentum == 0.5);
  CHECK(spec.data.augment->empty());
  CHECK(spec.schedule.milestones == std::vector{0.1, 0.2});
  CHECK(spec.model.kind.as<MlpSpec>().width == 5);
  CHECK_FALSE(spec.train.max_steps);
  CHECK(spec.name == "b");
  CHECK(spec.output.dir == "x=y");
  CHECK(parse_spec("seed: 1", "x.yaml", {"name=a", "data.path=."}).spec.name == "a");

  const auto name_of = [](const std::string& typed) { return load_with("", {"name=" + typed}).spec.name; };
  for (const char* typed :
       {"try #3", "a: b", "#1", "- a", "a, b", "x # y # z", "*a", "&a b", "!a b", "|", "%a", "`a"})
    CHECK(name_of(typed) == typed);
  CHECK(name_of("'try #3'") == "try #3");
  CHECK(name_of("\"caf\\u00e9\"") == "caf\xc3\xa9");
}

TEST_CASE("the last model name decides which keys have an effect, wherever they are set") {
  // The width is set for a ResNet and kept for the model that replaces it; the stem is not.
  const LoadedSpec mlp = load_with("model: {stem: imagenet, width: 8}", {"model.depth=2", "model.name=mlp"});
  CHECK(mlp.spec.model.kind.as<MlpSpec>() ==
        MlpSpec{.width = 8, .depth = 2, .hidden_width = 256, .image_size = 32});
  REQUIRE(mlp.warnings.size() == 1);
  CHECK(mlp.warnings[0].rfind("x.yaml:3:15: model.stem: has no effect: mlp ", 0) == 0);
  CHECK(contains(mlp.warnings[0], "resnet18, wide_resnet18, resnet50"));
  // A size keeps the settings that were made for another size of the same model.
  const LoadedSpec wide = load_with("model: {name: resnet18, width: 8}", {"model.name=wide_resnet18"});
  CHECK(wide.spec.model.kind.as<ResNetSpec>().width_multiplier == 2);
  CHECK(wide.spec.model.kind.as<ResNetSpec>().width == 8);
  CHECK(wide.warnings.empty());
  // The keys of other models are not named as if they had an effect.
  CHECK_FALSE(contains(spec_error(spec_with("model: {name: llama_tiny, layers: 3}")), "window_size"));
}

TEST_CASE("a later file replaces individual keys of an earlier one, and a file those of its bases") {
  const TempFolder folder;
  const auto root =
      folder.write("root.yaml", spec_with("optimizer:\n  lr: 0.1\n  momentum: 0.5\nseed: 1\n"
                                          "schedule: {name: step, milestones: [0.1, 0.2, 0.3]}\n"));
  folder.write("middle.yaml", "base: root.yaml\noptimizer: {lr: 0.2}\ntrain: {epochs: 3}\n");
  folder.write("other.yaml", "optimizer: {lr: 0.3}\nseed: 2\n");
  // Of several bases the later takes precedence, and the file itself over all.
  const auto leaf =
      folder.write("leaf.yaml", "schedule: {milestones: [0.9]}\nbase: [middle.yaml, other.yaml]\n");
  const auto variant = folder.write("variant.yaml", "name: variant\ntrain: {epochs: 4}\n");
  const auto spec = load_spec({leaf, variant}, {"seed=7"}).spec;
  CHECK(spec.name == "variant");
  CHECK(spec.optimizer.lr() == 0.3);
  CHECK(spec.optimizer.rule.as<SgdSpec>().momentum == 0.5);
  CHECK(spec.schedule.milestones == std::vector{0.9});
  CHECK(spec.train.epochs == 4);
  CHECK(spec.seed == 7);
  CHECK(load_spec({leaf}, {}).spec.seed == 2);
  CHECK(load_spec({leaf}, {}).spec.train.epochs == 3);

  // Each error is reported where it was written, even if a later file or override replaces the value.
  const auto broken = folder.write("broken.yaml", "base: root.yaml\noptimizer:\n  lr: x\n");
  for (const auto& files : {std::vector{broken, root}, {root, broken}})
    CHECK(contains(message_of<UsageError>([&] { load_spec(files, {"optimizer.lr=1"}); }),
                   broken.string() + ":3:7: optimizer.lr: found 'x'"));
}

TEST_CASE("a file that is missing, or not a regular one of reasonable size, is refused without waiting") {
  const TempFolder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  folder.write("root.yaml", spec_with(""));
  std::filesystem::resize_file(folder.write("huge", ""), 10'000'000'000);  // a sparse file
  folder.write("other", "base: ../" + folder.path().filename().string() + "/circle\n");
  folder.write("30", spec_with(""));
  for (int i = 0; i < 30; ++i) {  // each file names the next one twice: 2^30 files to read
    const std::string next = std::to_string(i + 1);
    folder.write(std::to_string(i), std::string("base: [").append(next).append(", ").append(next) + "]\n");
  }
  folder.write("circle", "base: other\n");
  folder.write("lost", "name: x\nbase: [root.yaml, nowhere.yaml]\n");
  folder.write("long", "base: " + std::string(100'000, 'x') + ".yaml\n");
  for (const auto& [name, says] : {std::pair{"missing", "missing: cannot be read"},
                                   {"", "found a folder"},
                                   {"/dev/zero", "/dev/zero: found a pipe or a device"},
                                   {"pipe", "pipe: found a pipe or a device"},
                                   {"huge", "huge: found 10000000000 bytes, expected "},
                                   {"circle", "other:1:7: base: found '"},
                                   {"lost", "lost:2:19: base: found '"},
                                   {"long", "long:1:7: base: found '"},
                                   {"0", "more than 256 files"}}) {
    const std::string error = file_error(folder / name);
    INFO(error.substr(0, 300));
    CHECK(contains(error, says));
    CHECK(error.size() < 1000);
  }
  for (const char* bases : {"[]", "[root.yaml, {a: b}]", "", "{root.yaml: 1}"}) {
    const auto wrong = folder.write("wrong.yaml", "name: x\nbase: " + std::string(bases) + "\n");
    CHECK(contains(file_error(wrong), wrong.string() + ":2:1: base: expected"));
  }
  CHECK(contains(message_of<UsageError>([&] { load_spec({}, {"name=a"}); }), "--config"));
}

TEST_CASE("a long value is reported by its beginning and its length") {
  const std::string value(10'000, 'v');
  const std::vector<std::pair<std::string, std::string>> around = {
      {"optimizer: {lr: ", "}"},    {"optimizer: {lr: \"", "\"}"},    {"model: {name: ", "}"},
      {"output: {dir: {", ": 1}}"}, {"subnetwork: {coverage: ", "}"}, {"", ": 1"},
      {"optimizer: {", ": 1}"},     {"train: {max_steps: [", "]}"}};
  for (const auto& [before, after] : around) {
    const std::string error = spec_error(spec_with(before + value + after));
    CAPTURE(before, error.size());
    CHECK(!error.empty());
    CHECK(error.size() < 1200);
  }
  for (const std::string& key : {std::string("optimizer.lr"), std::string("name"), value + ".a"})
    CHECK(spec_error(spec_with(""), {key + "=" + value}).size() < 1200);
}

// Names that are near: validate_test.cpp. Limits and exact numbers: print_test.cpp.
TEST_CASE("numbers are printed short, and in a form that every YAML version reads") {
  CHECK(shortest_decimal(0.1) == "0.1");
  CHECK(shortest_decimal(0) == "0");
  CHECK(shortest_decimal(5e-4) == "5.0e-04");
}

TEST_CASE("what lies in place of a file is known by its beginning, and nothing else is taken for it") {
  for (const auto& [text, says] :
       {std::pair{std::string("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), "git lfs pull"},
        {"<!doctype html>", "HTML page"},
        {"\xEF\xBB\xBF <HTML lang='en'>", "HTML page"},
        {"\n\t<html>", "HTML page"},
        {std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03", 10), "gunzip"}})
    CHECK(contains(wrong_content(text), says));
  for (const char* other :
       {"", " ", "\x1f\x8b", "version: 1", "html", "<?xml version='1.0'?>", "{}", "name: a"})
    CHECK(wrong_content(other).empty());
}

TEST_CASE("UTF-8 is what nlohmann::json takes for it") {
  std::mt19937 random(7);
  // Bytes at the borders of UTF-8's ranges, so that whole characters occur.
  const std::string bytes = "a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5\xff";
  int valid = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string text;
    for (size_t length = random() % 5; text.size() < length;)
      text += bytes[random() % bytes.size()];
    bool expected = true;
    try {
      static_cast<void>(nlohmann::json(text).dump());
    } catch (const nlohmann::json::type_error&) {
      expected = false;
    }
    valid += expected ? 1 : 0;
    REQUIRE(!invalid_utf8_at(text).has_value() == expected);
  }
  CHECK(valid > 1000);
  CHECK(invalid_utf8_at("ab\xc3") == 2U);
}

}  // namespace
}  // namespace sdp
