#include "experiment/load.h"

#include <sys/stat.h>

#include "optim/adamw.h"
#include "optim/sgd.h"
#include "spec_errors.h"

namespace sdp {
namespace {

std::string file_error(const std::filesystem::path& file) {
  return message_of<UsageError>([&] { load_spec({file}, {}); });
}

TEST_CASE("values are read however YAML writes them, and unset keys have the values of the structs") {
  // Every key and value: print_test.cpp.
  const LoadedSpec loaded = load_with(R"(# a comment
seed: 9223372036854775807
model: {name: mlp, width: 8, depth: +3}
optimizer: {name: adamw, lr: 5e-4, beta1: 0, weight_decay: 0, shard: false}
schedule:
  name: step
  milestones:
    - 0.25
    - .5
eval: {recalibrate_batches: null}
output: {dir: "a: b"}
)");
  const ExperimentSpec& spec = loaded.spec;
  CHECK(loaded.warnings.empty());
  CHECK(spec.seed == INT64_MAX);
  CHECK(spec.model.kind.as<MlpSpec>().depth == 3);
  CHECK(spec.optimizer.rule.as<AdamWSpec>() == AdamWSpec{.lr = 5e-4, .weight_decay = 0, .beta1 = 0});
  CHECK_FALSE(spec.optimizer.shard);
  CHECK(spec.schedule.milestones == std::vector{0.25, 0.5});
  CHECK(spec.output.dir == "a: b");
  CHECK(spec.checkpoint == CheckpointSpec{});
  CHECK(spec.train == TrainSpec{});
}

TEST_CASE("what is wrong in a file is refused at its place, with the key and what was found") {
  // Every key's type and limits: print_test.cpp.
  for (const auto& [rest, message] :
       {std::pair{"subnetwork:\n  workers: 1e3\n", "x.yaml:4:12: subnetwork.workers: found '1e3', "},
        {"subnetwork:\n  workers: \"4\"\n", "x.yaml:4:12: subnetwork.workers: found the text \"4\", "},
        {"subnetwork:\n  workers: [4]\n", "x.yaml:4:12: subnetwork.workers: found a list, "},
        {"subnetwork:\n  workers:\n  coverage: 1\n", "x.yaml:4:3: subnetwork.workers: found nothing, "},
        {"seed: 9223372036854775808", "x.yaml:3:7: seed: found '9223372036854775808', "},
        {"seed: +-5", "x.yaml:3:7: seed: found '+-5', "},
        {"optimizer: {lr: 0.1 0.2}", "x.yaml:3:17: optimizer.lr: found '0.1 0.2', "},
        {"optimizer: {lr: nan}", "x.yaml:3:17: optimizer.lr: found 'nan', "},
        {"optimizer: {lr: .inf}", "x.yaml:3:17: optimizer.lr: found '.inf', "},
        {"optimizer: {lr: 1e400}", "x.yaml:3:17: optimizer.lr: found '1e400', "},
        {"schedule: {milestones: 0.5}", "x.yaml:3:24: schedule.milestones: found '0.5', "},
        {"schedule: {milestones: [0.5, 1]}", "x.yaml:3:30: schedule.milestones[1]: found '1', "},
        {"schedule: {milestones: [0.5, 0.5]}", "x.yaml:3:24: schedule.milestones: found "},
        {"name: b\n", "x.yaml:3:1: name: found a second time"},
        {"model: resnet18", "x.yaml:3:8: model: found 'resnet18', "},
        {"model:", "x.yaml:3:1: model: found nothing, "},
        {"optimiser: {lr: 1}", "x.yaml:3:1: optimiser: unknown key; did you mean 'optimizer'?"},
        {"checkpoint:\n  every_epoch: 3\n", "x.yaml:4:3: checkpoint.every_epoch: unknown key; did you mean "},
        {"output: {learning_rate: 3}", "x.yaml:3:10: output.learning_rate: unknown key. Allowed here: dir, "},
        // An unknown key comes before wrong values of its neighbors.
        {"output: {dir: [], trase: 3}", "2 errors:\n  x.yaml:3:19: output.trase: unknown key"},
        {"train:\n  epochs: 1\n  epochs: 2\n", "x.yaml:5:3: train.epochs: found a second time"},
        {"model: [1, 2\n", "x.yaml:4:1: not valid YAML: "},
        {"model:\n  name: mlp\n\twidth: 3\n", "x.yaml:5:1: not valid YAML: "},
        {"---\nseed: 1\n", "x.yaml:3:1: found a second document"},
        {"seed: &a 1\noutput: *a\n", "x.yaml:4:9: found an alias"},
        {"? [a]\n: 1\n", "x.yaml:3:3: found a key that is not a word"},
        {"output: {dir: caf\xe9}\n", "x.yaml:3:18: found a byte that is not UTF-8"}}) {
    const std::string error = spec_error(spec_with(rest));
    CAPTURE(rest, error);
    CHECK(error.rfind(message, 0) == 0);
  }
  for (const auto& [text, message] :
       {std::pair{"", "x.yaml:1:1: found nothing, expected a mapping"},
        {"# only this\n\n", "x.yaml:1:1: found nothing, "},
        {"- name\n", "x.yaml:1:1: found a list, "},
        {"name\n", "x.yaml:1:1: found 'name', "},
        {"name: a: b\n", "x.yaml:1:8: not valid YAML: "},
        {"\n# c\nname: a\n", "x.yaml:3:1: data.path: missing, expected the folder"},
        {"data: {path: .}\n", "x.yaml:1:1: name: missing, expected the name of the run folder"},
        {"name: a\ndata:\n  name: cifar10\n", "x.yaml:3:3: data.path: missing"},
        {"name: a\ndata:\n  path: ''\n", "x.yaml:3:9: data.path: found the text \"\""},
        {"name: a\ndata:\n  path: .\n  augment: [flop]\n", "x.yaml:4:13: data.augment[0]: found 'flop', "}})
    CHECK(spec_error(text).rfind(message, 0) == 0);
  CHECK(contains(spec_error(spec_with("name: b\n")), "line 1)"));
  for (const std::string& text : {spec_with("output: {dir: \"a}\n"), std::string(100'000, '[')})
    CHECK(contains(spec_error(text), "not valid YAML"));
}

TEST_CASE("all errors are reported at once, each with its place") {
  const std::string error = spec_error(
      "name: ../x\nlr: 1\nmodel: {name: lama, image_sizes: 9}\noptimizer: {lr: x, nesterov: true, momentum: "
      "0}\n"
      "train: {batch_size: 4, precision: fp16}\nsubnetwork: {workers: 3, coverage: 1/2}\nbatch: 3\n",
      {"optimizer=sgd", "seed=-1"});
  INFO(error);
  for (const char* place :
       {"x.yaml:1:7: name: ", "x.yaml:2:1: lr: unknown key; did you mean optimizer.lr?",
        "x.yaml:3:15: model.name: ",
        "x.yaml:3:21: model.image_sizes: unknown key; did you mean 'image_size'?",
        "x.yaml:4:17: optimizer.lr: ",
        "x.yaml:5:9: train.batch_size: unknown key; did you mean 'batch_size_per_worker'?",
        "x.yaml:5:35: train.precision: ", "x.yaml:6:36: subnetwork.coverage: ",
        "x.yaml:7:1: batch: unknown key; did you mean ", "data.path: missing",
        "--set seed=-1: seed: ", "--set optimizer=sgd: optimizer: "})
    CHECK(contains(error, place));
  CHECK(contains(error, "12 errors"));
  // Contradictions that take part in another error, and checks of an unknown model, would mislead.
  CHECK_FALSE(contains(error, "optimizer.nesterov"));
  CHECK_FALSE(contains(error, "width_multiplier"));  // a key of the default model
  CHECK_FALSE(contains(error, "data.name"));
}

TEST_CASE("suggestions for names and keys") {
  CHECK(contains(spec_error(spec_with("model: {name: llama}")),
                 "did you mean one of llama_tiny, llama_134m, llama_500m, llama_1b?"));
  CHECK_FALSE(contains(spec_error(spec_with("train: {precision: fp16}")), "did you mean"));
  // The keys of other models are not allowed to appear as if they had an effect.
  const std::string of_llama = spec_error(spec_with("model: {name: llama_tiny, layers: 3}"));
  CHECK(contains(of_llama, "Allowed here: name, width, depth"));
  CHECK_FALSE(contains(of_llama, "window_size"));
}

TEST_CASE("overrides come last and are parsed as YAML") {
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
}

TEST_CASE("an override's text is as it was typed, or refused") {
  const auto name_of = [](const std::string& typed) { return load_with("", {"name=" + typed}).spec.name; };
  for (const char* typed :
       {"try #3", "a: b", "#1", "- a", "a, b", "x # y # z", "*a", "&a b", "!a b", "|", "%a", "`a"})
    CHECK(name_of(typed) == typed);
  CHECK(name_of("'try #3'") == "try #3");
  CHECK(name_of("\"caf\\u00e9\"") == "caf\xc3\xa9");
  for (const char* typed : {"'a' # b", "\"a\" b", "[a] # b", "{a: 1} #"})
    CHECK(contains(spec_error(spec_with(""), {std::string("name=") + typed}), "--set name="));
}

TEST_CASE("what only a shell expands is refused, in files and overrides") {
  for (const std::string path : {"~/runs", "~", "~me/x", "$HOME/runs", "/a/${USER}/b", "runs/$X"}) {
    CHECK(contains(spec_error(spec_with("output: {dir: \"" + path + "\"}\n")), "output.dir: found"));
    CHECK(contains(spec_error(spec_with(""), {"output.dir=" + path + "/"}), "output.dir: found"));
  }
  CHECK(load("output: {dir: a~b$/5$}\n").output.dir == "a~b$/5$");
}

TEST_CASE("text in another encoding is refused") {
  CHECK(contains(spec_error(spec_with(""), {"name=caf\xe9"}), "not UTF-8"));
  CHECK(contains(spec_error(spec_with(""), {"name='caf\xe9'"}), "not UTF-8"));
  std::string utf16 = "\xff\xfe";
  for (const char letter : std::string("name: a\r\n"))
    utf16 += {letter, '\0'};
  CHECK(contains(spec_error(utf16), "UTF-16"));
  CHECK(contains(spec_error(utf16.substr(2)), "UTF-16"));
  CHECK(parse_spec("\xef\xbb\xbf" + spec_with("output: {dir: caf\xc3\xa9}\n"), "x.yaml").spec.output.dir ==
        "caf\xc3\xa9");
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
  // Settings without effect must still be valid.
  CHECK(contains(spec_error(spec_with("model: {name: mlp, patch_size: 0}")),
                 "x.yaml:3:32: model.patch_size: found '0', expected a whole number, between 1 and 4096"));
}

TEST_CASE("a wrong override is refused, and named") {
  for (const auto& [assignment, message] :
       {std::pair{"optimizer.lr=x", "optimizer.lr: found 'x', "},
        {"optimizer.lr=", "optimizer.lr: found nothing, "},
        {"optimizer.rl=1", "optimizer.rl: unknown key; did you mean 'lr'"},
        {"model.name.x=1", "model.name: found a mapping, "},
        {"model=mlp", "model: found 'mlp', expected a mapping"},
        {"name='a", "not valid YAML: "},
        {"data.augment=[crop", "not valid YAML: "},
        {"model={depth: 1, depth: 2}", "model.depth: found a second time"},
        {"optimizer.lr", "expected key=value"},
        {"", "expected key=value"},
        {".lr=1", "expected key=value"},
        {"optimizer.=1", "expected key=value"},
        {"optimizer..lr=1", "expected key=value"}})
    CHECK(contains(spec_error(spec_with(""), {assignment}),
                   "--set " + std::string(assignment) + ": " + message));
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

TEST_CASE("a base that is none is refused where it is named") {
  const TempFolder folder;
  folder.write("root.yaml", spec_with(""));
  const auto circle = folder.write("circle.yaml", "base: other.yaml\n");
  folder.write("other.yaml", "base: ../" + folder.path().filename().string() + "/circle.yaml\n");
  CHECK(contains(file_error(circle), "other.yaml:1:7: base: found '"));
  CHECK(contains(file_error(circle), "is based on this file"));
  for (const char* bases : {"[]", "[root.yaml, {a: b}]", "", "{root.yaml: 1}"}) {
    const auto wrong = folder.write("wrong.yaml", "name: x\nbase: " + std::string(bases) + "\n");
    CHECK(contains(file_error(wrong), wrong.string() + ":2:1: base: expected the name of a YAML file"));
  }
  const auto lost = folder.write("lost.yaml", "name: x\nbase: [root.yaml, nowhere.yaml]\n");
  CHECK(contains(file_error(lost), lost.string() + ":2:19: base: found '"));
  CHECK(contains(file_error(lost), "nowhere.yaml', which "));
  // Each file names the next one twice: 2^30 files to read.
  for (int i = 0; i < 30; ++i) {
    const std::string next = std::to_string(i + 1) + ".yaml";
    folder.write(std::to_string(i) + ".yaml", "base: [" + next + ", " + next + "]\n");
  }
  folder.write("30.yaml", spec_with(""));
  CHECK(contains(file_error(folder / "0.yaml"), "base: found '"));
  CHECK(contains(file_error(folder / "0.yaml"), "more than 256 files"));
  const auto long_name = folder.write("long.yaml", "base: " + std::string(100'000, 'x') + ".yaml\n");
  CHECK(contains(file_error(long_name), long_name.string() + ":1:7: base: found '"));
  CHECK(file_error(long_name).size() < 1000);
}

TEST_CASE("a file that is missing, or not a regular one of reasonable size, is refused without waiting") {
  const TempFolder folder;
  CHECK(contains(file_error(folder / "missing.yaml"), "missing.yaml: cannot be read"));
  CHECK(contains(message_of<UsageError>([&] { load_spec({}, {"name=a"}); }), "--config"));
  CHECK(contains(file_error("/dev/zero"), "/dev/zero: found a pipe or a device"));
  CHECK(contains(file_error(folder.path()), "found a folder"));
  REQUIRE(mkfifo((folder / "pipe.yaml").c_str(), 0600) == 0);
  CHECK(contains(file_error(folder / "pipe.yaml"), "found a pipe or a device"));
  const auto huge = folder.write("huge.yaml", "");
  std::filesystem::resize_file(huge, 10'000'000'000);  // a sparse file
  CHECK(contains(file_error(huge), "found 10000000000 bytes, expected a YAML file of at most 1048576"));
}

TEST_CASE("a long value is reported by its beginning and its length") {
  const std::string value(10'000, 'v');
  for (const std::string& text :
       {"optimizer: {lr: " + value + "}", "optimizer: {lr: \"" + value + "\"}",
        "model: {name: " + value + "}", "subnetwork: {coverage: " + value + "}", value + ": 1",
        "optimizer: {" + value + ": 1}", "train: {max_steps: [" + value + "]}",
        "output: {dir: {" + value + ": 1}}"}) {
    CAPTURE(text.substr(0, 40));
    const std::string error = spec_error(spec_with(text + "\n"));
    CHECK(!error.empty());
    CHECK(error.size() < 1200);
  }
  for (const std::string& key : {std::string("optimizer.lr"), std::string("name"), value + ".a"})
    CHECK(spec_error(spec_with(""), {key + "=" + value}).size() < 1200);
}

}  // namespace
}  // namespace sdp
