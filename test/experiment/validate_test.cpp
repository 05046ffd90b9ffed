#include <filesystem>

#include "experiment/load.h"
#include "spec_errors.h"

namespace sdp {
namespace {

std::string with_data(const std::string& keys, const std::string& more = "") {
  return "data: {path: ., " + keys + "}\n" + more + "\n";
}

std::string with_llama(const std::string& keys) {
  return with_data("name: tokens", "model: {name: llama_134m" + keys + "}");
}

std::string swin(const std::string& keys) {
  return "model: {name: swin_t, " + keys + "}";
}

using Rows = std::vector<std::pair<std::string, std::string>>;

TEST_CASE("what is wrong in a file is refused at its place, with the key and what was found") {
  // Every key's type and limits: print_test.cpp.
  const Rows rows = {
      {"subnetwork:\n  workers: 1e3\n", "4:12: subnetwork.workers: found '1e3', "},
      {"subnetwork:\n  workers: \"4\"\n", "4:12: subnetwork.workers: found the text \"4\", "},
      {"subnetwork:\n  workers: [4]\n", "4:12: subnetwork.workers: found a list, "},
      {"subnetwork:\n  workers:\n  coverage: 1\n", "4:3: subnetwork.workers: found nothing, "},
      {"seed: 9223372036854775808", "3:7: seed: found '9223372036854775808', "},
      {"seed: +-5", "3:7: seed: found '+-5', "},
      {"optimizer: {lr: 0.1 0.2}", "3:17: optimizer.lr: found '0.1 0.2', "},
      {"optimizer: {lr: nan}", "3:17: optimizer.lr: found 'nan', "},
      {"optimizer: {lr: 1e400}", "3:17: optimizer.lr: found '1e400', "},
      {"schedule: {milestones: 0.5}", "3:24: schedule.milestones: found '0.5', "},
      {"schedule: {milestones: [0.5, 1]}", "3:30: schedule.milestones[1]: found '1', "},
      {"schedule: {milestones: [0.5, 0.5]}", "3:24: schedule.milestones: found "},
      {"name: b\n", "3:1: name: found a second time"},
      {"model: resnet18", "3:8: model: found 'resnet18', "},
      {"model:", "3:1: model: found nothing, "},
      {"optimiser: {lr: 1}", "3:1: optimiser: unknown key; did you mean 'optimizer'?"},
      {"optimzier: {lr: 1}", "3:1: optimzier: unknown key; did you mean 'optimizer'?"},  // a swap
      {"output: {learning_rate: 3}", "3:10: output.learning_rate: unknown key. Allowed here: dir, "},
      {"model: {name: llama}", "did you mean one of llama_tiny, llama_134m, llama_500m, llama_1b?"},
      // An unknown key comes before wrong values of its neighbors.
      {"output: {dir: [], trase: 3}", "2 errors:\n  x.yaml:3:19: output.trase: unknown key"},
      {"model: [1, 2\n", "4:1: not valid YAML: "},
      {"model:\n  name: mlp\n\twidth: 3\n", "5:1: not valid YAML: "},
      {std::string(100'000, '['), "not valid YAML"},
      {"---\nseed: 1\n", "3:1: found a second document"},
      {"seed: &a 1\noutput: *a\n", "4:9: found an alias"},
      {"? [a]\n: 1\n", "3:3: found a key that is not a word"},
      {"output: {dir: caf\xe9}\n", "3:18: found a byte that is not UTF-8"},
      // What only a shell expands.
      {"output: {dir: ~/runs}", "3:15: output.dir: found"},
      {"output: {dir: $HOME/runs}", "output.dir: found"},
      {"data:\n  name: cifar10\n", "3:3: data.path: missing"},
      {"data:\n  path: ''\n", "3:9: data.path: found the text \"\""},
      {"data:\n  path: .\n  augment: [flop]\n", "4:13: data.augment[0]: found 'flop', "},
      // Settings without effect must still be valid.
      {"model: {name: mlp, patch_size: 0}", "3:32: model.patch_size: found '0', expected a whole number, "},
      // Keys that contradict each other.
      {"subnetwork: {assignment: file}", "3:13: subnetwork.assignment_file: missing, expected"},
      {"subnetwork: {assignment: file, assignment_file: no.json}",
       "3:49: subnetwork.assignment_file: found 'no.json', expected a file"},
      {"subnetwork: {assignment_file: no.json}",
       "3:31: subnetwork.assignment_file: found 'no.json', expected no"},
      {"optimizer: {nesterov: true, momentum: 0}", "3:23: optimizer.nesterov: found true with momentum 0"},
      {"schedule: {name: step, milestones: [0.5, 0.25]}", "3:36: schedule.milestones: found a share"},
      {"train: {device: cpu, backend: nccl}", "3:31: train.backend: found nccl, expected gloo or auto"},
      {"model: {name: llama_tiny}", "data.name: found cifar10, expected tokens"},
      {with_data("name: tokens"), "2:23: data.name: found tokens, expected images"},
      {with_data("name: tokens, mixup_alpha: 1", "model: {name: llama_tiny}"),
       "2:44: data.mixup_alpha: found 1, expected 0"},
      {with_llama(", heads: 5"), "model.width: found 768, expected a multiple of model.heads (5)"},
      {with_llama(", kv_heads: 5"), "model.heads: found 12, expected a multiple of model.kv_heads (5)"},
      {with_llama(", heads: 768"), "model.heads: found 768 heads of size 1, expected"},
      {swin("image_size: 30"), "3:35: model.image_size: found 30, expected a multiple of model.patch"},
      {swin("depths: [2, 2, 2, 2, 2, 2, 2]"), "model.depths: found [2, 2, 2, 2, 2, 2, 2], expected"},
      {swin("depths: [2, 0]"), "model.depths[1]: found"},
      {swin("num_heads: [3, 6]"), "model.num_heads: found [3, 6], expected"},
      {swin("num_heads: [3, 5, 12, 24]"), "model.width: found 192, expected a multiple"},
      {with_data("name: svhn, normalization: {mean: [0.5]}"), "normalization.mean: found [0.5], expected 3"},
      {with_data("name: mnist, normalization: {std: [0.5, 1, 1]}"), "data.normalization.std: found"},
      {with_data("name: mnist, normalization: {std: [0]}"), "data.normalization.std[0]: found"},
      {with_data("name: tokens, normalization: {mean: [0.5]}", "model: {name: llama_tiny}"), "expected none"},
      {with_data("augment: [flip, resized_crop]"),
       "2:26: data.augment: found [flip, resized_crop], expected crop"},
      {with_data("name: imagenet, augment: [crop]"), "2:42: data.augment: found [crop], expected resized"},
      {with_data("name: imagenet, location: device"),
       "2:43: data.location: found device, expected host or auto"}};
  for (const auto& [rest, says] : rows) {
    const std::string error = spec_error(spec_with(rest));
    CAPTURE(rest.substr(0, 200), error);
    CHECK(contains(error, says));
  }
  std::string utf16 = "\xff\xfe";
  for (const char letter : std::string("name: a\r\n"))
    utf16 += {letter, '\0'};
  const Rows texts = {{"", "1:1: found nothing, expected a mapping"},
                      {"- name\n", "1:1: found a list, "},
                      {"name: a: b\n", "1:8: not valid YAML: "},
                      {"\n# c\nname: a\n", "3:1: data.path: missing, expected the folder"},
                      {"data: {path: .}\n", "1:1: name: missing, expected the name"},
                      {utf16, "UTF-16"},
                      {utf16.substr(2), "UTF-16"}};
  for (const auto& [text, says] : texts)
    CHECK(contains(spec_error(text), says));
  for (const char* name : {"a/b", ".", ".hidden", "a..b", "/abs", "\"a\\nb\""})
    CHECK(contains(spec_error("name: " + std::string(name) + "\ndata: {path: .}\n"),
                   "x.yaml:1:7: name: found '"));
  CHECK_FALSE(contains(spec_error(spec_with("train: {precision: fp16}")), "did you mean"));
}

TEST_CASE("a wrong override is refused, and named") {
  const TempFolder folder;
  const std::string file = "data.path=" + folder.write("file", "x").string();
  const Rows rows = {{"optimizer.lr=x", "optimizer.lr: found 'x', "},
                     {"optimizer.lr=", "optimizer.lr: found nothing, "},
                     {"optimizer.rl=1", "optimizer.rl: unknown key; did you mean 'lr'"},
                     {"model.name.x=1", "model.name: found a mapping, "},
                     {"model=mlp", "model: found 'mlp', expected a mapping"},
                     {"name='a", "not valid YAML: "},
                     {"model={depth: 1, depth: 2}", "model.depth: found a second time"},
                     {"optimizer.lr", "expected key=value"},
                     {".lr=1", "expected key=value"},
                     {"optimizer.=1", "expected key=value"},
                     {"output.dir=~/", "output.dir: found"},
                     {"subnetwork.coverage=1/3", "subnetwork.coverage: found '1/3'"},
                     {file, "data.path: found "},
                     {"name='a' # b", ""},
                     {"name=\"a\" b", ""},
                     {"name=[a] # b", ""}};
  for (const auto& [assignment, says] : rows)
    CHECK(contains(spec_error(spec_with("subnetwork: {workers: 8}"), {assignment}),
                   std::string("--set ").append(assignment).append(": ") + says));
  for (const char* name : {"caf\xe9", "'caf\xe9'"})
    CHECK(contains(spec_error(spec_with(""), {std::string("name=") + name}), "not UTF-8"));
  CHECK(contains(spec_error(spec_with("subnetwork: {workers: 8, coverage: 4/8}"), {"subnetwork.workers=5"}),
                 "x.yaml:3:36: subnetwork.coverage: found '4/8'"));
}

TEST_CASE("the data folder must exist for commands that read it; else the message says how to get data") {
  for (const auto& [data, command] :
       {std::pair{"cifar10", "scripts/fetch_data cifar10 no/set"},
        {"svhn, svhn_extra: true", "scripts/fetch_data svhn_extra no/set"},
        {"imagenet", "scripts/fetch_data imagenet --from FOLDER_OF_THE_ARCHIVES no/set"},
        {"tokens", "scripts/prepare_tokens.py"}}) {
    const std::string model = data == std::string("tokens") ? "model: {name: llama_tiny}\n" : "";
    const std::string text = spec_with("data: {path: no/set, name: " + std::string(data) + "}\n" + model);
    const std::string error = spec_error(text);
    INFO(error);
    CHECK(contains(error, "x.yaml:2:14: data.path: found 'no/set'"));
    CHECK(contains(error, "'" + std::filesystem::current_path().string() + "'"));
    CHECK(contains(error, command));
    CHECK(parse_spec(text, "x.yaml", {}, NamedFiles::kNotNeeded).spec.data.path == "no/set");
  }
}

TEST_CASE("a setting without effect causes a warning, at its position, and only if it was set") {
  const Rows rows = {
      {"model: {depth: 3}", "3:16: model.depth: "},
      {"model: {name: mlp, stem: cifar}", "3:26: model.stem: "},
      {"model: {stochastic_depth_rule: uniform}", "3:32: model.stochastic_depth_rule: "},
      {"subnetwork: {unit: branch}", "3:20: subnetwork.unit: "},
      {"subnetwork: {workers: 4, assignment: random}", "3:38: subnetwork.assignment: "},
      {"optimizer: {name: adamw, momentum: 0.9}", "3:36: optimizer.momentum: "},
      {"optimizer: {beta1: 0.8}", "3:20: optimizer.beta1: "},
      {"optimizer: {weight_decay: 0, decay_norms_and_biases: false}", "3:54: optimizer.decay_norms"},
      {"schedule: {warmup_steps: 5, warmup_epochs: 1}", "3:44: schedule.warmup_epochs: "},
      {"schedule: {milestones: [0.5]}", "3:24: schedule.milestones: "},
      {"schedule: {gamma: 0.5}", "3:19: schedule.gamma: "},
      {"schedule: {name: constant, final_lr_factor: 0.1}", "3:45: schedule.final_lr_factor: "},
      {"train: {budget: flops}", "3:17: train.budget: "},
      {"checkpoint: {every_steps: 5, every_epochs: 1}", "3:44: checkpoint.every_epochs: "},
      {"model: {name: mlp}\neval: {recalibrate_batches: 5}", "4:29: eval.recalibrate_batches: "},
      {"eval: {branch_scale: survival}", "3:22: eval.branch_scale: "},
      {"eval: {max_samples_per_subnetwork: 5}", "3:36: eval.max_samples_per_subnetwork: "},
      {with_data("index_dir: ."), "2:28: data.index_dir: "},
      {with_data("sequence_length: 7"), "2:34: data.sequence_length: "}};
  for (const auto& [rest, expected] : rows) {
    const auto warnings = load_with(rest).warnings;
    INFO(rest);
    REQUIRE(warnings.size() == 1);
    INFO(warnings[0]);
    CHECK(warnings[0].rfind("x.yaml:" + expected, 0) == 0);
  }
}

TEST_CASE("settings that fit together are neither refused nor warned of") {
  const TempFolder folder;
  const std::string plan = folder.write("plan.json", "{}").string();
  const std::vector<std::string> fitting = {
      "",
      "model: {stem: imagenet}\nsubnetwork: {unit: block, assignment: balanced}",
      "optimizer: {momentum: 0.5, nesterov: true}",
      "optimizer: {name: adamw, beta1: 0.5, beta2: 0.9, eps: 1e-6}",
      "schedule: {name: step, milestones: [0.5], gamma: 0.5}",
      "schedule: {name: linear, final_lr_factor: 0.5, warmup_epochs: 3}",
      "subnetwork: {workers: 4, coverage: 1/2, assignment: window}\n"
      "train: {budget: flops, precision: bf16}\neval: {branch_scale: survival}\n",
      "schedule: {warmup_steps: null, warmup_epochs: 3}",
      swin("depths: [1, 1], num_heads: [3, 3]"),
      with_data("location: device"),
      with_data("name: svhn, normalization: {mean: [0.5, 0.5, 0.5]}"),
      "subnetwork: {workers: 4, coverage: 4/8, assignment: file, assignment_file: '" + plan + "'}",
      "train: {device: cuda, backend: gloo}",
      "train: {device: auto, backend: nccl}"};
  for (const std::string& rest : fitting)
    CHECK(load_with(rest).warnings.empty());
  CHECK(parse_spec("name: a.b-c_1\ndata: {path: .}\n", "x.yaml").spec.name == "a.b-c_1");
}

TEST_CASE("what was left unset is resolved") {
  const auto resnet = [](const std::string& keys) {
    const auto spec = load("model: {" + keys + "}").model.kind.as<ResNetSpec>();
    return std::tuple(spec.width.value(), spec.width_multiplier.value(), spec.image_size.value());
  };
  CHECK(resnet("") == std::tuple(64, 1, 32));
  CHECK(resnet("name: wide_resnet18") == std::tuple(64, 2, 32));
  CHECK(resnet("stem: imagenet") == std::tuple(64, 1, 224));
  CHECK(resnet("stem: imagenet, image_size: 64") == std::tuple(64, 1, 64));
  const auto own_swin = load("model: {name: swin_t}").model.kind.as<SwinSpec>();
  CHECK(own_swin.depths == std::vector<int64_t>{2, 2, 6, 2});
  CHECK(own_swin.num_heads == std::vector<int64_t>{3, 6, 12, 24});
  CHECK(own_swin.image_size == 224);
  CHECK(load("model: {name: swin_t, window_size: 4}").model.image_size() == 32);
  const auto llama = load(with_llama("")).model.kind.as<LlamaSpec>();
  CHECK(std::tuple(llama.width, llama.kv_heads, llama.vocab_size) == std::tuple(768, 12, 32000));

  using Batches = std::pair<std::string, int64_t>;
  for (const auto& [rest, batches] :
       {Batches{"4/4}", 0}, Batches{"2/4}", 100}, Batches{"2/4}\neval: {recalibrate_batches: 7}", 7},
        Batches{"2/4}\neval: {recalibrate_batches: 0}", 0}, Batches{"2/4}\nmodel: {name: mlp}", 0},
        Batches{"2/4, masking: backward}", 0}})
    CHECK(load("subnetwork: {workers: 4, coverage: " + rest).eval.recalibrate_batches == batches);

  CHECK_FALSE(load("").eval.max_samples.has_value());
  CHECK_FALSE(load("").eval.max_samples_per_subnetwork.has_value());
  CHECK(load("eval: {max_samples: 30}").eval.max_samples == 30);
  const auto of_tokens = [](const std::string& eval) {
    const EvalSpec spec = load(with_llama("") + "subnetwork: {workers: 4, replicas: 2, coverage: 2/4}\n" +
                               "train: {batch_size_per_worker: 3, accumulate_steps: 5}\n" + eval)
                              .eval;
    return std::pair(spec.max_samples.value(), spec.max_samples_per_subnetwork.value());
  };
  CHECK(of_tokens("") == std::pair<int64_t, int64_t>(20 * 120, 5 * 120));
  CHECK(of_tokens("eval: {max_samples: 30}") == std::pair<int64_t, int64_t>(30, 5 * 120));
  CHECK(of_tokens("eval: {max_samples_per_subnetwork: 0}") == std::pair<int64_t, int64_t>(20 * 120, 0));

  const auto data = [](const std::string& keys) { return load(with_data(keys)).data; };
  using enum Augmentation;
  CHECK(data("name: cifar100").augment == std::vector{kCrop, kFlip});
  CHECK(data("name: svhn").augment == std::vector{kCrop});
  CHECK(data("name: imagenet").augment == std::vector{kResizedCrop, kFlip});
  CHECK(data("name: imagenet, augment: []").augment == std::vector<Augmentation>{});
  const DataSpec own = data("name: mnist, normalization: {mean: [0.25]}");
  CHECK(own.normalization.mean == std::vector{0.25});
  CHECK(own.normalization.stddev == std::vector{0.3081});
  const std::string stem = "}\nmodel: {stem: imagenet";
  CHECK(data("name: imagenet" + stem).set.as<ImageNetSpec>().eval_resize == 256);
  CHECK(data("name: imagenet, eval_resize: 232" + stem).set.as<ImageNetSpec>().eval_resize == 232);
}

}  // namespace
}  // namespace sdp
