#include "experiment/load.h"

#include <filesystem>
#include <map>

#include "spec_errors.h"

namespace sdp {
namespace {

std::string with_data(const std::string& keys, const std::string& more = "") {
  return "name: a\ndata: {path: ., " + keys + "}\n" + more + "\n";
}

std::string with_llama(const std::string& keys) {
  return with_data("name: tokens", "model: {name: llama_134m" + keys + "}");
}

TEST_CASE("coverage is checked against the workers, wherever they are set") {
  CHECK(contains(spec_error(spec_with("subnetwork: {workers: 8, coverage: 4/8}"), {"subnetwork.workers=5"}),
                 "x.yaml:3:36: subnetwork.coverage: found '4/8'"));
  CHECK(contains(spec_error(spec_with("subnetwork: {workers: 8}"), {"subnetwork.coverage=1/3"}),
                 "--set subnetwork.coverage=1/3: subnetwork.coverage: found '1/3'"));
  CHECK(load("subnetwork: {workers: 4, coverage: 4/8}").subnetwork.coverage.text == "4/8");
}

TEST_CASE("the name must be a valid folder name") {
  for (const char* name : {"a/b", ".", ".hidden", "a..b", "/abs", "\"a\\nb\""}) {
    const std::string error = spec_error("name: " + std::string(name) + "\ndata: {path: .}\n");
    INFO(error);
    CHECK(contains(error, "x.yaml:1:7: name: found '"));
    CHECK(contains(error, "expected a folder name"));
  }
  CHECK(parse_spec("name: a.b-c_1\ndata: {path: .}\n", "x.yaml").spec.name == "a.b-c_1");
}

TEST_CASE("the data folder must exist for commands that read it") {
  const std::string text = "name: a\ndata: {path: ./no/such/folder}\n";
  const std::string error = spec_error(text);
  CHECK(contains(error, "x.yaml:2:14: data.path: found './no/such/folder'"));
  CHECK(contains(error, "'" + std::filesystem::current_path().string() + "'"));
  CHECK(parse_spec(text, "x.yaml", {}, NamedFiles::kNotNeeded).spec.data.path == "./no/such/folder");
  const TempFolder folder;
  const auto file = folder.write("file", "x");
  CHECK(contains(spec_error(spec_with(""), {"data.path=" + file.string()}), "expected a folder that exists"));
}

TEST_CASE("a missing data set: the command that writes it, and the settings for data that is available") {
  for (const auto& [data, command, instead] :
       {std::tuple{"cifar10", "scripts/fetch_data cifar10 no/set", "data.path=examples/data"},
        {"cifar100", "scripts/fetch_data cifar100 no/set", "name: cifar10, path: examples/data"},
        {"svhn", "scripts/fetch_data svhn no/set", "model.num_classes=10"},
        {"fashion_mnist", "scripts/fetch_data fashion_mnist no/set", "model.image_channels=3"},
        {"svhn, svhn_extra: true", "scripts/fetch_data svhn_extra no/set", "model.num_classes=10"},
        {"imagenet", "scripts/fetch_data imagenet --from FOLDER_OF_THE_ARCHIVES no/set",
         "model.image_size=32"},
        {"tokens", "scripts/prepare_tokens.py", "--tokenizer bytes"}}) {
    const std::string model = data == std::string("tokens") ? "model: {name: llama_tiny}\n" : "";
    const std::string error =
        spec_error("name: a\ndata: {path: no/set, name: " + std::string(data) + "}\n" + model);
    INFO(error);
    CHECK(contains(error, command));
    CHECK(contains(error, instead));
    CHECK_FALSE(contains(error, "train.precision=fp32"));
  }
  CHECK(contains(spec_error("name: a\ndata: {path: no/c}\ntrain: {precision: bf16}\n"),
                 "train.precision=fp32"));
}

TEST_CASE("keys that contradict each other are refused at their place, with what was found and expected") {
  const auto swin = [](const std::string& keys) { return spec_with("model: {name: swin_t, " + keys + "}"); };
  const std::map<std::string, std::string> cases = {
      {spec_with("subnetwork: {assignment: file}"),
       "x.yaml:3:13: subnetwork.assignment_file: missing, expected"},
      {spec_with("subnetwork: {assignment: file, assignment_file: no.json}"),
       "x.yaml:3:49: subnetwork.assignment_file: found 'no.json', expected a file that exists"},
      {spec_with("subnetwork: {assignment_file: no.json}"),
       "x.yaml:3:31: subnetwork.assignment_file: found 'no.json', expected no"},
      {spec_with("optimizer: {nesterov: true, momentum: 0}"),
       "x.yaml:3:23: optimizer.nesterov: found true with momentum 0"},
      {spec_with("schedule: {name: step, milestones: [0.5, 0.25]}"),
       "x.yaml:3:36: schedule.milestones: found a share below"},
      {spec_with("train: {device: cpu, backend: nccl}"),
       "x.yaml:3:31: train.backend: found nccl, expected gloo or auto: train.device is cpu"},
      {spec_with("model: {name: llama_tiny}"),
       "data.name: found cifar10, expected tokens: model.name is llama_tiny"},
      {with_data("name: tokens"),
       "x.yaml:2:23: data.name: found tokens, expected images: model.name is resnet18"},
      {with_data("name: tokens, mixup_alpha: 1", "model: {name: llama_tiny}"),
       "x.yaml:2:44: data.mixup_alpha: found 1, expected 0"},
      {with_llama(", heads: 5"), "model.width: found 768, expected a multiple of model.heads (5)"},
      {with_llama(", kv_heads: 5"), "model.heads: found 12, expected a multiple of model.kv_heads (5)"},
      {with_llama(", heads: 768"), "model.heads: found 768 heads of size 1, expected"},
      {swin("image_size: 30"),
       "x.yaml:3:35: model.image_size: found 30, expected a multiple of model.patch_size (4)"},
      {swin("depths: [2, 2, 2, 2, 2, 2, 2]"), "model.depths: found [2, 2, 2, 2, 2, 2, 2], expected"},
      {swin("depths: []"), "model.depths: found [], expected"},
      {swin("depths: [2, 0]"), "model.depths[1]: found"},
      {swin("num_heads: [3, 6]"), "model.num_heads: found [3, 6], expected"},
      {swin("num_heads: [3, 5, 12, 24]"), "model.width: found 192, expected a multiple"},
      {with_data("name: svhn, normalization: {mean: [0.5]}"),
       "data.normalization.mean: found [0.5], expected 3"},
      {with_data("name: mnist, normalization: {std: [0.5, 1, 1]}"), "data.normalization.std: found"},
      {with_data("name: mnist, normalization: {std: [0]}"), "data.normalization.std[0]: found"},
      {with_data("name: tokens, normalization: {mean: [0.5]}", "model: {name: llama_tiny}"), "expected none"},
      {with_data("augment: [flip, resized_crop]"),
       "x.yaml:2:26: data.augment: found [flip, resized_crop], expected crop instead of resized_crop"},
      {with_data("name: imagenet, augment: [crop]"),
       "x.yaml:2:42: data.augment: found [crop], expected resized_crop instead of crop"},
      {with_data("name: imagenet, location: device"),
       "x.yaml:2:43: data.location: found device, expected host or auto: imagenet is read from"}};
  for (const auto& [text, message] : cases) {
    CAPTURE(text);
    CHECK(contains(spec_error(text), message));
  }
  const TempFolder folder;
  const std::string plan = folder.write("plan.json", "{}").string();
  for (const std::string& fits :
       {swin("depths: [1, 1], num_heads: [3, 3]"), with_data("location: device"),
        with_data("name: svhn, normalization: {mean: [0.5, 0.5, 0.5]}"),
        spec_with("subnetwork: {assignment: file, assignment_file: '" + plan + "'}"),
        spec_with("train: {device: cpu, backend: gloo}"), spec_with("train: {device: cuda, backend: gloo}"),
        spec_with("train: {device: cuda, backend: nccl}"), spec_with("train: {device: auto, backend: nccl}")})
    CHECK(spec_error(fits).empty());
}

TEST_CASE("a setting without effect causes a warning, at its position, and only if it was set") {
  for (const auto& [rest, expected] : std::map<std::string, std::string>{
           {"model: {depth: 3}", "x.yaml:3:16: model.depth: "},
           {"model: {hidden_width: 3}", "x.yaml:3:23: model.hidden_width: "},
           {"model: {name: mlp, stem: cifar}", "x.yaml:3:26: model.stem: "},
           {"model: {stochastic_depth_rule: uniform}", "x.yaml:3:32: model.stochastic_depth_rule: "},
           {"subnetwork: {unit: branch}", "x.yaml:3:20: subnetwork.unit: "},
           {"subnetwork: {workers: 4, assignment: random}", "x.yaml:3:38: subnetwork.assignment: "},
           {"optimizer: {name: adamw, momentum: 0.9}", "x.yaml:3:36: optimizer.momentum: "},
           {"optimizer: {name: adamw, nesterov: true}", "x.yaml:3:36: optimizer.nesterov: "},
           {"optimizer: {beta1: 0.8}", "x.yaml:3:20: optimizer.beta1: "},
           {"optimizer: {beta2: 0.8}", "x.yaml:3:20: optimizer.beta2: "},
           {"optimizer: {eps: 1e-6}", "x.yaml:3:18: optimizer.eps: "},
           {"optimizer: {weight_decay: 0, decay_norms_and_biases: false}",
            "x.yaml:3:54: optimizer.decay_norms_and_biases: "},
           {"schedule: {warmup_steps: 5, warmup_epochs: 1}", "x.yaml:3:44: schedule.warmup_epochs: "},
           {"schedule: {milestones: [0.5]}", "x.yaml:3:24: schedule.milestones: "},
           {"schedule: {gamma: 0.5}", "x.yaml:3:19: schedule.gamma: "},
           {"schedule: {name: constant, final_lr_factor: 0.1}", "x.yaml:3:45: schedule.final_lr_factor: "},
           {"train: {budget: flops}", "x.yaml:3:17: train.budget: "},
           {"train: {budget: coverage}", "x.yaml:3:17: train.budget: "},
           {"checkpoint: {every_steps: 5, every_epochs: 1}", "x.yaml:3:44: checkpoint.every_epochs: "},
           {"model: {name: mlp}\neval: {recalibrate_batches: 5}", "x.yaml:4:29: eval.recalibrate_batches: "},
           {"eval: {branch_scale: survival}", "x.yaml:3:22: eval.branch_scale: "},
           {"eval: {max_samples_per_subnetwork: 5}", "x.yaml:3:36: eval.max_samples_per_subnetwork: "},
       }) {
    const auto warnings = load_with(rest).warnings;
    INFO(rest);
    REQUIRE(warnings.size() == 1);
    INFO(warnings[0]);
    CHECK(warnings[0].rfind(expected, 0) == 0);
  }
  for (const char* setting :
       {"index_dir: .", "eval_resize: 40", "scaled_decoding: false", "svhn_extra: true", "on_error: skip",
        "sequence_length: 7", "train_files: '*.bin'", "test_files: '*.bin'"}) {
    const auto warnings = parse_spec(with_data(setting), "x.yaml").warnings;
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], ": data." + std::string(setting).substr(0, 5)));
  }
}

TEST_CASE("settings with an effect cause no warnings") {
  for (const char* rest : {"", "model: {name: mlp, depth: 3, hidden_width: 4}",
                           "model: {stem: imagenet}\nsubnetwork: {unit: block, assignment: balanced}",
                           "optimizer: {momentum: 0.5, nesterov: true}",
                           "optimizer: {name: adamw, beta1: 0.5, beta2: 0.9, eps: 1e-6}",
                           "schedule: {name: step, milestones: [0.5], gamma: 0.5}",
                           "schedule: {name: linear, final_lr_factor: 0.5, warmup_epochs: 3}",
                           "subnetwork: {workers: 4, coverage: 1/2, assignment: window}\n"
                           "train: {budget: flops, precision: bf16}\neval: {branch_scale: survival}\n",
                           "schedule: {warmup_steps: null, warmup_epochs: 3}"})
    CHECK(load_with(rest).warnings.empty());
}

TEST_CASE("what was left unset is resolved") {
  CHECK(load("").model.kind.as<ResNetSpec>() ==
        ResNetSpec{.width = 64, .width_multiplier = 1, .image_size = 32});
  CHECK(load("model: {name: wide_resnet18}").model.kind.as<ResNetSpec>().width_multiplier == 2);
  CHECK(load("model: {stem: imagenet}").model.image_size() == 224);
  CHECK(load("model: {stem: imagenet, image_size: 64}").model.image_size() == 64);
  const auto swin = load("model: {name: swin_t}").model.kind.as<SwinSpec>();
  CHECK(swin.depths == std::vector<int64_t>{2, 2, 6, 2});
  CHECK(swin.num_heads == std::vector<int64_t>{3, 6, 12, 24});
  CHECK(swin.image_size == 224);
  CHECK(load("model: {name: swin_t, window_size: 4}").model.image_size() == 32);
  const auto llama = parse_spec(with_llama(""), "x.yaml").spec.model.kind.as<LlamaSpec>();
  CHECK(llama.width == 768);
  CHECK(llama.kv_heads == 12);
  CHECK(llama.vocab_size == 32000);

  const auto recalibrate_batches = [](const std::string& coverage, const std::string& rest = "") {
    return load("subnetwork: {workers: 4, coverage: " + coverage + "}\n" + rest).eval.recalibrate_batches;
  };
  CHECK(recalibrate_batches("4/4") == 0);
  CHECK(recalibrate_batches("2/4") == 100);
  CHECK(recalibrate_batches("2/4", "eval: {recalibrate_batches: 7}") == 7);
  CHECK(recalibrate_batches("2/4", "eval: {recalibrate_batches: 0}") == 0);
  CHECK(recalibrate_batches("2/4", "model: {name: mlp}") == 0);
  CHECK(recalibrate_batches("2/4, masking: backward") == 0);

  CHECK_FALSE(load("").eval.max_samples.has_value());
  CHECK_FALSE(load("").eval.max_samples_per_subnetwork.has_value());
  CHECK(load("eval: {max_samples: 30}").eval.max_samples == 30);
  const auto of_tokens = [&](const std::string& eval) {
    const EvalSpec spec =
        parse_spec(with_llama("") + "subnetwork: {workers: 4, replicas: 2, coverage: 2/4}\n" +
                       "train: {batch_size_per_worker: 3, accumulate_steps: 5}\n" + eval,
                   "x.yaml")
            .spec.eval;
    return std::pair(spec.max_samples.value(), spec.max_samples_per_subnetwork.value());
  };
  CHECK(of_tokens("") == std::pair<int64_t, int64_t>(20 * 120, 5 * 120));
  CHECK(of_tokens("eval: {max_samples: 30}") == std::pair<int64_t, int64_t>(30, 5 * 120));
  CHECK(of_tokens("eval: {max_samples_per_subnetwork: 0}") == std::pair<int64_t, int64_t>(20 * 120, 0));

  const auto data = [](const std::string& keys) { return parse_spec(with_data(keys), "x.yaml").spec.data; };
  using enum Augmentation;
  CHECK(data("name: cifar100").augment == std::vector{kCrop, kFlip});
  CHECK(data("name: svhn").augment == std::vector{kCrop});
  CHECK(data("name: imagenet").augment == std::vector{kResizedCrop, kFlip});
  CHECK(data("name: imagenet, augment: []").augment == std::vector<Augmentation>{});
  const DataSpec own = data("name: mnist, normalization: {mean: [0.25]}");
  CHECK(own.normalization.mean == std::vector{0.25});
  CHECK(own.normalization.stddev == std::vector{0.3081});
  const auto eval_resize = [&](const std::string& keys) {
    return data(keys).set.as<ImageNetSpec>().eval_resize;
  };
  CHECK(eval_resize("name: imagenet}\nmodel: {stem: imagenet") == 256);
  CHECK(eval_resize("name: imagenet, eval_resize: 232}\nmodel: {stem: imagenet") == 232);
}

}  // namespace
}  // namespace sdp
