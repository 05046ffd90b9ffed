#include "experiment/load.h"

#include <filesystem>

#include "spec_errors.h"

namespace sdp {
namespace {

ExperimentSpec load(const std::string& rest) {
  return parse_spec(spec_with(rest), "x.yaml").spec;
}

std::vector<std::string> warnings_of(const std::string& rest) {
  return parse_spec(spec_with(rest), "x.yaml").warnings;
}

TEST_CASE("coverage is checked against the workers, and reported at its position") {
  CHECK(spec_error(spec_with("subnetwork:\n  workers: 8\n  coverage: 0.4\n"))
            .rfind("x.yaml:5:13: subnetwork.coverage: found '0.4', ", 0) == 0);
  CHECK(contains(spec_error(spec_with("subnetwork: {workers: 8, coverage: 4/8}"), {"subnetwork.workers=5"}),
                 "x.yaml:3:36: subnetwork.coverage: found '4/8'"));
  CHECK(contains(spec_error(spec_with("subnetwork: {workers: 8}"), {"subnetwork.coverage=1/3"}),
                 "--set subnetwork.coverage=1/3: subnetwork.coverage: found '1/3'"));
  CHECK(load("subnetwork: {workers: 4, coverage: 4/8}").subnetwork.coverage.text == "4/8");
}

TEST_CASE("the name must be a valid folder name") {
  for (const char* name : {"a/b", "..", ".", ".hidden", "a..b", "/abs", "\"a\\nb\""}) {
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
  CHECK(contains(error, "expected a folder that exists"));
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

TEST_CASE("assignment: file and assignment_file require each other") {
  const TempFolder folder;
  const std::string plan = folder.write("plan.json", "{}").string();
  CHECK(load("subnetwork: {assignment: file, assignment_file: '" + plan + "'}").subnetwork.assignment_file ==
        plan);
  CHECK(contains(spec_error(spec_with("subnetwork: {assignment: file}")),
                 "x.yaml:3:13: subnetwork.assignment_file: missing, expected"));
  CHECK(spec_error(spec_with("subnetwork: {assignment: file, assignment_file: no.json}")) ==
        "x.yaml:3:49: subnetwork.assignment_file: found 'no.json', expected a file that exists");
  CHECK(contains(spec_error(spec_with("subnetwork: {assignment_file: no.json}")),
                 "x.yaml:3:31: subnetwork.assignment_file: found 'no.json', expected no"));
}

TEST_CASE("unset sizes are the model's defaults, and some must be set together") {
  CHECK(load("").model.kind.as<ResNetSpec>() ==
        ResNetSpec{.width = 64, .width_multiplier = 1, .image_size = 32});
  CHECK(load("model: {name: wide_resnet18}").model.kind.as<ResNetSpec>().width_multiplier == 2);
  const auto swin = load("model: {name: swin_t}").model.kind.as<SwinSpec>();
  CHECK(swin.depths == std::vector<int64_t>{2, 2, 6, 2});
  CHECK(swin.num_heads == std::vector<int64_t>{3, 6, 12, 24});
  CHECK(swin.image_size == 224);
  CHECK(load("model: {name: swin_t, window_size: 4}").model.image_size() == 32);
  const std::string tokens = "data: {path: ., name: tokens}\n";
  const auto llama = [&](const std::string& keys) {
    return "name: a\n" + tokens + "model: {name: llama_134m" + keys + "}\n";
  };
  const auto base = parse_spec(llama(""), "x.yaml").spec.model.kind.as<LlamaSpec>();
  CHECK(base.width == 768);
  CHECK(base.kv_heads == 12);
  CHECK(base.vocab_size == 32000);
  CHECK(contains(spec_error(llama(", heads: 5")),
                 "model.width: found 768, expected a multiple of model.heads (5)"));
  CHECK(contains(spec_error(llama(", kv_heads: 5")),
                 "model.heads: found 12, expected a multiple of model.kv_heads (5)"));
  CHECK(contains(spec_error(llama(", heads: 768")), "model.heads: found 768 heads of size 1, expected"));
  CHECK(contains(spec_error(spec_with("model: {name: swin_t, image_size: 30}")),
                 "x.yaml:3:35: model.image_size: found 30, expected a multiple of model.patch_size (4)"));
}

TEST_CASE("images are for image models, tokens for language models") {
  CHECK(contains(spec_error(spec_with("model: {name: llama_tiny}")),
                 "data.name: found cifar10, expected tokens: model.name is llama_tiny"));
  CHECK(contains(spec_error("name: a\ndata: {path: ., name: tokens}\n"),
                 "x.yaml:2:23: data.name: found tokens, expected images: model.name is resnet18"));
  CHECK(contains(
      spec_error("name: a\ndata: {path: ., name: tokens, mixup_alpha: 1}\nmodel: {name: llama_tiny}\n"),
      "x.yaml:2:44: data.mixup_alpha: found 1, expected 0"));
}

TEST_CASE("Nesterov needs momentum, milestones increase") {
  CHECK(contains(spec_error(spec_with("optimizer: {nesterov: true, momentum: 0}")),
                 "x.yaml:3:23: optimizer.nesterov: found true with momentum 0"));
  CHECK(load("optimizer: {nesterov: true, momentum: 0.5}").optimizer.rule.as<SgdSpec>().nesterov);
  CHECK(contains(spec_error(spec_with("schedule: {name: step, milestones: [0.5, 0.25]}")),
                 "x.yaml:3:36: schedule.milestones: found a share below"));
}

TEST_CASE("a setting without effect causes a warning, at its position, and only if it was set") {
  struct Case {
    const char* rest;
    const char* position_and_key;
  };
  const std::vector<Case> cases = {
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
  };
  for (const auto& [rest, expected] : cases) {
    const auto warnings = warnings_of(rest);
    INFO(rest);
    REQUIRE(warnings.size() == 1);
    INFO(warnings[0]);
    CHECK(warnings[0].rfind(expected, 0) == 0);
  }
}

TEST_CASE("data settings that the data set does not use cause warnings") {
  const auto warning = [](const std::string& data) {
    const auto warnings = parse_spec("name: a\ndata: {path: ., " + data + "}\n", "x.yaml").warnings;
    return warnings.size() == 1 ? warnings[0] : std::to_string(warnings.size()) + " warnings";
  };
  for (const char* setting :
       {"index_dir: .", "eval_resize: 40", "scaled_decoding: false", "svhn_extra: true", "on_error: skip",
        "sequence_length: 7", "train_files: '*.bin'", "test_files: '*.bin'"})
    CHECK(contains(warning(setting), ": data." + std::string(setting).substr(0, 5)));
}

TEST_CASE("a Swin's stages and a normalization's channels are counted") {
  const auto error = [](const std::string& rest) { return spec_error("name: a\n" + rest + "\n"); };
  const auto swin = [&](const std::string& keys) {
    return error("data: {path: .}\nmodel: {name: swin_t, " + keys + "}");
  };
  CHECK(swin("depths: [1, 1], num_heads: [3, 3]") == "no error");
  CHECK(
      contains(swin("depths: [2, 2, 2, 2, 2, 2, 2]"), "model.depths: found [2, 2, 2, 2, 2, 2, 2], expected"));
  CHECK(contains(swin("depths: []"), "model.depths: found [], expected"));
  CHECK(contains(swin("depths: [2, 0]"), "model.depths[1]: found"));
  CHECK(contains(swin("num_heads: [3, 6]"), "model.num_heads: found [3, 6], expected"));
  CHECK(contains(swin("num_heads: [3, 5, 12, 24]"), "model.width: found 192, expected a multiple"));

  const auto data = [&](const std::string& keys) { return error("data: {path: ., " + keys + "}"); };
  CHECK(data("name: svhn, normalization: {mean: [0.5, 0.5, 0.5]}") == "no error");
  CHECK(contains(data("name: svhn, normalization: {mean: [0.5]}"),
                 "data.normalization.mean: found [0.5], expected 3"));
  CHECK(contains(data("name: mnist, normalization: {std: [0.5, 1, 1]}"), "data.normalization.std: found"));
  CHECK(contains(data("name: mnist, normalization: {std: [0]}"), "data.normalization.std[0]: found"));
  CHECK(contains(
      error("data: {path: ., name: tokens, normalization: {mean: [0.5]}}\nmodel: {name: llama_tiny}"),
      "expected none"));
  const DataSpec own =
      parse_spec("name: a\ndata: {path: ., name: mnist, normalization: {mean: [0.25]}}\n", "x.yaml")
          .spec.data;
  CHECK(own.normalization.mean == std::vector{0.25});
  CHECK(own.normalization.stddev == std::vector{0.3081});
}

TEST_CASE("NCCL is for GPUs, Gloo for either device") {
  const auto error = [](const std::string& train) {
    return spec_error("name: a\ndata: {path: .}\ntrain: {" + train + "}\n");
  };
  CHECK(error("device: cpu, backend: nccl") ==
        "x.yaml:3:31: train.backend: found nccl, expected gloo or auto: train.device is cpu");
  for (const char* fits : {"device: cpu, backend: gloo", "device: cuda, backend: gloo",
                           "device: cuda, backend: nccl", "device: auto, backend: nccl"})
    CHECK(error(fits) == "no error");
}

TEST_CASE("images are cropped, and kept on the device, only if their data set allows it") {
  const auto error = [](const std::string& data) {
    return spec_error("name: a\ndata: {path: ., " + data + "}\n");
  };
  CHECK(error("augment: [flip, resized_crop]") ==
        "x.yaml:2:26: data.augment: found [flip, resized_crop], expected crop instead of resized_crop, which "
        "is for imagenet");
  CHECK(contains(error("name: imagenet, augment: [crop]"),
                 "x.yaml:2:42: data.augment: found [crop], expected resized_crop instead of crop"));
  CHECK(contains(error("name: imagenet, location: device"),
                 "x.yaml:2:43: data.location: found device, expected host or auto: imagenet is read from"));
  CHECK(error("location: device") == "no error");
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
    CHECK(warnings_of(rest).empty());
}

TEST_CASE("what was left unset is resolved") {
  CHECK(load("").model.image_size() == 32);
  CHECK(load("model: {stem: imagenet}").model.image_size() == 224);
  CHECK(load("model: {stem: imagenet, image_size: 64}").model.image_size() == 64);
  CHECK(load("model: {name: mlp}").model.image_size() == 32);

  const std::string half = "subnetwork: {workers: 4, coverage: 2/4}\n";
  CHECK(load("").eval.recalibrate_batches == 0);
  CHECK(load("subnetwork: {workers: 4, coverage: 4/4}\n").eval.recalibrate_batches == 0);
  CHECK(load(half).eval.recalibrate_batches == 100);
  CHECK(load(half + "eval: {recalibrate_batches: 7}").eval.recalibrate_batches == 7);
  CHECK(load(half + "eval: {recalibrate_batches: 0}").eval.recalibrate_batches == 0);
  CHECK(load(half + "model: {name: mlp}").eval.recalibrate_batches == 0);

  CHECK(load("subnetwork: {workers: 4, coverage: 2/4, masking: backward}\n").eval.recalibrate_batches == 0);

  CHECK_FALSE(load(half).eval.max_samples.has_value());
  CHECK_FALSE(load(half).eval.max_samples_per_subnetwork.has_value());
  CHECK(load(half + "eval: {max_samples: 30}").eval.max_samples == 30);
  const std::string tokens =
      "name: a\nmodel: {name: llama_tiny}\ndata: {name: tokens, path: .}\n"
      "subnetwork: {workers: 4, replicas: 2, coverage: 2/4}\n"
      "train: {batch_size_per_worker: 3, accumulate_steps: 5}\n";
  const auto eval_of_tokens = [&](const std::string& rest) {
    return parse_spec(tokens + rest, "x.yaml").spec.eval;
  };
  CHECK(eval_of_tokens("").max_samples == 20 * 120);
  CHECK(eval_of_tokens("").max_samples_per_subnetwork == 5 * 120);
  CHECK(eval_of_tokens("eval: {max_samples: 30}").max_samples == 30);
  CHECK(eval_of_tokens("eval: {max_samples: 30}").max_samples_per_subnetwork == 5 * 120);
  CHECK(eval_of_tokens("eval: {max_samples_per_subnetwork: 0}").max_samples_per_subnetwork == 0);

  const auto data = [](const std::string& rest) {
    return parse_spec("name: a\ndata: {path: ., " + rest + "}\n", "x.yaml").spec.data;
  };
  using enum Augmentation;
  CHECK(data("name: cifar100").augment == std::vector{kCrop, kFlip});
  CHECK(data("name: svhn").augment == std::vector{kCrop});
  CHECK(data("name: imagenet").augment == std::vector{kResizedCrop, kFlip});
  CHECK(data("name: imagenet, augment: []").augment == std::vector<Augmentation>{});
  const auto eval_resize = [&](const std::string& rest) {
    return data(rest).set.as<ImageNetSpec>().eval_resize;
  };
  CHECK(eval_resize("name: imagenet}\nmodel: {stem: imagenet") == 256);
  CHECK(eval_resize("name: imagenet, eval_resize: 232}\nmodel: {stem: imagenet") == 232);
}

}  // namespace
}  // namespace sdp
