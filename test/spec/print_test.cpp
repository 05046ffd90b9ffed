#include "experiment/spec/print.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "spec_errors.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

// Every key, listed a second time: a key that a printer misses, or that was added unintentionally, is
// detected.

using Keys = std::vector<std::string>;

/// The keys of each kind of a section with several kinds.
const std::map<std::string, Keys> kKeysOfKind = {
    {"resnet18",
     {"model.num_classes", "model.stem", "model.width", "model.width_multiplier", "model.image_size",
      "model.image_channels"}},
    {"resnet50",
     {"model.num_classes", "model.stem", "model.width", "model.image_size", "model.image_channels"}},
    {"swin_t",
     {"model.num_classes", "model.width", "model.depths", "model.num_heads", "model.image_size",
      "model.image_channels", "model.patch_size", "model.window_size"}},
    {"vit_s_16",
     {"model.num_classes", "model.width", "model.depth", "model.hidden_width", "model.heads",
      "model.image_size", "model.image_channels", "model.patch_size"}},
    {"llama_tiny",
     {"model.width", "model.depth", "model.hidden_width", "model.heads", "model.kv_heads", "model.head_size",
      "model.vocab_size", "model.tied_embeddings", "model.rope_theta", "model.norm_eps",
      "model.rope_scaling.factor", "model.rope_scaling.low_freq_factor",
      "model.rope_scaling.high_freq_factor", "model.rope_scaling.original_context"}},
    {"gpt2",
     {"model.width", "model.depth", "model.hidden_width", "model.heads", "model.vocab_size",
      "model.context_length"}},
    {"mlp",
     {"model.num_classes", "model.width", "model.depth", "model.hidden_width", "model.image_size",
      "model.image_channels"}},
    {"own",
     {"model.reads_tokens", "model.num_classes", "model.image_size", "model.image_channels",
      "model.vocab_size"}},
    {"sgd",
     {"optimizer.lr", "optimizer.weight_decay", "optimizer.decay_norms_and_biases", "optimizer.momentum",
      "optimizer.nesterov"}},
    {"adamw",
     {"optimizer.lr", "optimizer.weight_decay", "optimizer.decay_norms_and_biases", "optimizer.beta1",
      "optimizer.beta2", "optimizer.eps"}},
    {"cifar10", {}},
    {"cifar100", {}},
    {"svhn", {"data.svhn_extra"}},
    {"mnist", {}},
    {"fashion_mnist", {}},
    {"imagenet",
     {"data.train_files", "data.test_files", "data.index_dir", "data.eval_resize", "data.scaled_decoding",
      "data.max_image_pixels", "data.on_error"}},
    {"tokens", {"data.train_files", "data.test_files", "data.sequence_length"}}};

/// All other keys of each section in order; "-" is a key without a section, or stands for the keys of its
/// kinds.
const Keys kKeys = [] {
  const std::pair<std::string, std::string> sections[] = {
      {"name", "-"},
      {"seed", "-"},
      {"model", "name - dropout stochastic_depth stochastic_depth_rule"},
      {"data",
       "name - path validation_share augment mixup_alpha cutmix_alpha loader_threads "
       "prefetch_batches location normalization.mean normalization.std"},
      {"subnetwork",
       "workers replicas coverage construction masking unit slices_per_branch assignment "
       "assignment_file placement"},
      {"optimizer", "name - clip_norm shard groups ema_decay"},
      {"schedule", "name warmup_epochs warmup_steps milestones gamma final_lr_factor"},
      {"train",
       "epochs max_steps budget batch_size_per_worker accumulate_steps precision device backend "
       "bucket_megabytes reduce_dtype reduce_every release_gradients checkpoint_activations "
       "deterministic cuda_graph profile_steps log_every_steps collective_timeout_s label_smoothing "
       "on_nonfinite max_consecutive_skips audit_every"},
      {"checkpoint", "every_epochs every_steps every_minutes keep_last keep_best at_start"},
      {"eval",
       "every_epochs every_steps mode recalibrate_batches branch_scale batch_size max_samples "
       "max_samples_per_subnetwork"},
      {"output", "dir trace"}};
  Keys keys;
  for (const auto& [section, own] : sections) {
    std::istringstream words(own);
    for (std::string word; words >> word;)
      keys.push_back(word == "-" ? section : section + "." + word);
  }
  return keys;
}();

/// All keys, with those of one kind for each section.
Keys keys_with(const std::map<std::string, std::string>& kinds) {
  Keys keys;
  for (const std::string& key : kKeys) {
    const auto kind = kinds.find(key);
    if (kind == kinds.end()) {
      keys.push_back(key);
    } else {
      const Keys& own = kKeysOfKind.at(kind->second);
      keys.insert(keys.end(), own.begin(), own.end());
    }
  }
  return keys;
}

/// All keys, with those of all kinds, each once, sorted.
Keys all_keys() {
  std::set<std::string> keys;
  for (const auto& [name, own] : kKeysOfKind)
    keys.insert(own.begin(), own.end());
  for (const std::string& key : kKeys)
    if (key != "model" && key != "data" && key != "optimizer") keys.insert(key);
  return {keys.begin(), keys.end()};
}

Keys sorted(Keys keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

ExperimentSpec minimal() {
  return parse_spec(spec_with(""), "x.yaml").spec;
}

/// A spec with a value other than the default for every key.
ExperimentSpec unusual() {
  ExperimentSpec spec;
  spec.name = "unusual";
  spec.seed = std::numeric_limits<int64_t>::max();
  spec.model.kind = LlamaSpec{.width = 48,
                              .depth = 5,
                              .hidden_width = 7,
                              .heads = 6,
                              .kv_heads = 2,
                              .head_size = 10,
                              .vocab_size = 1000,
                              .tied_embeddings = true,
                              .rope_theta = 500000.5,
                              .norm_eps = 1e-6,
                              .rope_scaling = {32.5, 1.5, 4.5, 4096}};
  spec.model.dropout = 0.125;
  spec.model.stochastic_depth = 0.2;
  spec.model.stochastic_depth_rule = StochasticDepthRule::kUniform;
  spec.data = {.set = TokensSpec{"a*.bin", "b?.bin", 77},
               .path = ".",
               .augment = std::vector{Augmentation::kFlip},
               .validation_share = 0.125,
               .loader_threads = 3,
               .prefetch_batches = 9,
               .location = DataLocation::kHost};
  spec.subnetwork.workers = 6;
  spec.subnetwork.replicas = 2;
  spec.subnetwork.coverage.text = "0.333333";
  spec.subnetwork.unit = UnitKind::kBranch;
  spec.subnetwork.slices_per_branch = 5;
  spec.subnetwork.assignment = Assignment::kRandom;
  spec.optimizer = {AdamWSpec{0.1 + 0.2, 1e300, true, 0.95, 1 - 1e-16, 5e-324},
                    1e-7,
                    false,
                    {{"a.*: \"b\", {c}", 0.5, 0.25}, {"model.*", 2, std::nullopt}},
                    0.999};
  spec.schedule = {ScheduleName::kStep, 0.1, 3, {1e-9, 1.0 / 3, 1 - 1e-15}, 0.7, 0.01};
  spec.train = {123456.125,
                5,
                Budget::kCoverage,
                2,
                3,
                Precision::kBf16,
                DeviceKind::kCpu,
                BackendKind::kGloo,
                0.5,
                WireType::kFp32,
                ReduceEvery::kMicroBatch,
                false,
                true,
                true,
                false,
                3,
                1,
                60,
                0.1,
                OnNonfinite::kSkip,
                7,
                200};
  spec.checkpoint = {0, 4, 0.5, 9, KeepBest::kLoss, true};
  spec.eval = {2.5, 6, EvalMode::kStreamed, 3, BranchScale::kSurvival, 8, 1000, 10};
  spec.output = {"with \"quotes\", \\ # : and\ttab\nline é", true};
  return spec;
}

TEST_CASE("the output of to_yaml loads as an equal spec") {
  std::vector<ExperimentSpec> specs = {minimal(), unusual()};
  const std::vector<ModelKind> kinds = {{ResNetSpec{17, Stem::kImageNet, 48, 3, 11, 1}, "wide_resnet18"},
                                        SwinSpec{17, 48, {{1, 1}}, {{6, 8}}, 26, 1, 13, 19},
                                        VitSpec{17, 48, 5, 7, 3, 26, 1, 13},
                                        MlpSpec{17, 48, 5, 7, 11, 4},
                                        OwnSpec{.num_classes = 17, .image_size = 26}};
  for (const ModelKind& kind : kinds) {
    specs.push_back(minimal());
    specs.back().model.kind = kind;
  }
  specs.push_back(minimal());
  specs.back().data.set = SvhnSpec{{}, true};
  specs.back().data.normalization = {.mean = {{0.25, 0.25, 0.1}}, .stddev = {{1e-3, 1.0 / 3, 1}}};
  specs.push_back(minimal());
  specs.back().data.set = ImageNetSpec{"a*.tar", "b?.tar", "c", 40, false, 1'000'000, OnError::kSkip};
  specs.back().data.augment = ImageNetSpec::usual_augmentation();
  specs.push_back(minimal());
  specs.back().data.augment = std::vector<Augmentation>{};
  specs.back().schedule.milestones.clear();
  specs.push_back(minimal());
  specs.back().name = "null";  // words that YAML would read as another type
  specs.back().output.dir = "true";
  specs.push_back(minimal());
  specs.back().name = "123";
  specs.back().output.dir = "";
  for (const ExperimentSpec& spec : specs) {
    const std::string text = to_yaml(spec);
    INFO(text);
    CHECK(parse_spec(text, "x.yaml").spec == spec);
    CHECK(to_yaml(parse_spec(text, "x.yaml").spec) == text);
  }
}

TEST_CASE("equality compares every struct") {
  const ExperimentSpec spec = minimal();
  for (const char* change : {"name=b", "seed=1", "model.width=1", "data.augment=[]", "subnetwork.replicas=2",
                             "optimizer.lr=1", "schedule.gamma=1", "train.epochs=1", "checkpoint.keep_last=1",
                             "eval.batch_size=1", "output.trace=true"}) {
    INFO(change);
    const ExperimentSpec other = parse_spec(spec_with(""), "x.yaml", {change}).spec;
    CHECK(other != spec);
    CHECK(spec_hash(other) != spec_hash(spec));
  }
  CHECK(minimal() == spec);
  CHECK(spec_hash(minimal()) == spec_hash(spec));
}

TEST_CASE("the hash is 128 bits in hexadecimal") {
  const std::string hash = spec_hash(minimal());
  CHECK(hash.size() == 32);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
}

TEST_CASE("to_yaml prints every key in its section") {
  std::vector<std::string> keys;
  std::vector<std::string> sections;
  std::istringstream lines(to_yaml(unusual()));
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(' ');
    sections.resize(begin / 2);
    std::string key;
    for (const std::string& section : sections)
      key += section + ".";
    const std::string own = line.substr(begin, line.find(':') - begin);
    if (line.back() == ':')
      sections.push_back(own);
    else
      keys.push_back(key + own);
  }
  CHECK(keys == keys_with({{"model", "llama_tiny"}, {"data", "tokens"}, {"optimizer", "adamw"}}));
}

TEST_CASE("unset optional keys are null, and numbers are short") {
  const std::string text = to_yaml(ExperimentSpec{});
  CHECK(contains(text, "\n  image_size: null\n"));
  CHECK(contains(text, "\n  weight_decay: 5.0e-04\n"));
  CHECK(contains(text, "\n  milestones: [0.5, 0.75]\n"));
  CHECK(contains(text, "\n  augment: null\n"));
  CHECK(contains(text, "\n  coverage: 1\n"));
}

/// The keys at the beginning of the lines of a description, sorted.
Keys keys_described(const std::string& text) {
  const Keys known = all_keys();
  std::istringstream lines(text);
  Keys keys;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 110);
    const std::string word = line.substr(0, line.find(' '));
    if (std::find(known.begin(), known.end(), word) != known.end()) keys.push_back(word);
  }
  return sorted(keys);
}

TEST_CASE("describe_fields has a line for every key, within 110 columns") {
  const std::string text = describe_fields();
  Keys keys = keys_described(text);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());  // some keys belong to several kinds
  CHECK(keys == all_keys());
  for (const std::string model : {"resnet18", "swin_t", "llama_tiny", "mlp"})
    for (const std::string data : {"cifar10", "svhn", "imagenet", "tokens"})
      for (const std::string rule : {"sgd", "adamw"}) {
        const std::map<std::string, std::string> kinds = {
            {"model", model}, {"data", data}, {"optimizer", rule}};
        CHECK(keys_described(describe_fields(kinds)) == sorted(keys_with(kinds)));
      }
  CHECK(describe_fields({{"model", "wide_resnet18"}}) == describe_fields({{"model", "resnet18"}}));
  CHECK_THROWS_AS(describe_fields({{"model", "resnet19"}}), UsageError);
  CHECK(contains(
      text, "name                              text             (required)\n    name of the run folder\n"));
  CHECK(contains(text, "optimizer.name                    name             sgd           sgd | adamw\n"));
  CHECK(contains(
      text,
      "train.max_steps                   whole number     unset         between 1 and 1073741824 [steps]\n"));
  CHECK(contains(
      text, "optimizer.momentum                number           0.9           at least 0 and below 1\n"));
}

/// The dotted keys of a schema. Checks the requirements on every level on the way.
void collect_schema_keys(const Json& schema, const std::string& parent, std::vector<std::string>& keys) {
  INFO(parent);
  REQUIRE(schema.at("type") == "object");
  CHECK(schema.at("additionalProperties") == false);
  for (const auto& [key, property] : schema.at("properties").items()) {
    INFO(key);
    CHECK(property.at("description").get<std::string>() != "");
    const std::string dotted = parent.empty() ? key : parent + "." + key;
    if (property.value("type", Json()) == "object")
      collect_schema_keys(property, dotted, keys);
    else
      keys.push_back(dotted);
  }
}

TEST_CASE("the JSON Schema has every key with its type, limits and default") {
  const Json schema = Json::parse(json_schema());
  CHECK(schema.at("$schema") == "https://json-schema.org/draft/2020-12/schema");
  std::vector<std::string> keys;
  collect_schema_keys(schema, "", keys);
  CHECK(keys.back() == "base");  // not a key of the experiment: it names the files that provide other keys
  CHECK(schema.at("properties").at("base").at("type") == Json{"string", "array"});
  keys.pop_back();
  CHECK(sorted(keys) == all_keys());
  CHECK(schema.at("required") == Json{"name", "data"});

  const auto property = [&](const char* section, const char* key) -> Json {
    return schema.at("properties").at(section).at("properties").at(key);
  };
  CHECK(schema.at("properties").at("data").at("required") == Json{"path"});
  CHECK_FALSE(schema.at("properties").at("model").contains("required"));
  CHECK_FALSE(property("data", "path").contains("default"));
  CHECK(property("data", "path").at("type") == "string");

  CHECK(property("subnetwork", "workers").at("type") == "integer");
  CHECK(property("subnetwork", "workers").at("minimum") == 1);
  CHECK(property("subnetwork", "workers").at("default") == 1);
  CHECK(property("subnetwork", "coverage").at("default") == "1");
  const Json of_rules = property("optimizer", "lr").at("anyOf");
  for (const Json& rule : of_rules) {
    CHECK(rule.at("type") == "number");
    CHECK(rule.at("exclusiveMinimum") == 0);
    CHECK_FALSE(rule.contains("maximum"));
  }
  CHECK(of_rules.at(0).at("default") == 0.1);
  CHECK(of_rules.at(1).at("default") == 3e-4);
  CHECK(property("optimizer", "momentum").at("minimum") == 0);
  CHECK(property("optimizer", "momentum").at("exclusiveMaximum") == 1);
  CHECK(property("schedule", "final_lr_factor").at("maximum") == 1);
  CHECK(property("optimizer", "shard").at("type") == "boolean");
  CHECK(property("optimizer", "shard").at("default") == true);
  CHECK(property("optimizer", "name").at("enum") == Json{"sgd", "adamw"});
  CHECK(property("optimizer", "name").at("default") == "sgd");
  CHECK(property("model", "image_size").at("type") == Json{"integer", "null"});
  CHECK(property("model", "image_size").at("default").is_null());
  CHECK(contains(property("model", "image_size").at("description").get<std::string>(), "[pixels]"));
  // The keys of a kind appear again under the condition on its names.
  for (const std::string section : {"model", "data", "optimizer"})
    for (const Json& kind : schema.at("properties").at(section).at("allOf")) {
      const std::string name = kind.at("if").at("properties").at("name").at("enum").at(0);
      Keys own;
      for (const auto& [key, own_property] : kind.at("then").at("properties").items())
        if (own_property.value("type", Json()) == "object")
          collect_schema_keys(own_property, section + "." + key, own);
        else
          own.push_back(section + "." + key);
      CHECK(own == kKeysOfKind.at(name));
    }
  CHECK(property("data", "augment").at("type") == Json{"array", "null"});
  CHECK(property("data", "augment").at("items").at("enum") == Json{"crop", "resized_crop", "flip"});
  CHECK(property("data", "augment").at("default").is_null());
  CHECK(property("schedule", "milestones").at("items").at("type") == "number");
  CHECK(property("schedule", "milestones").at("items").at("exclusiveMaximum") == 1);
}

}  // namespace
}  // namespace sdp
