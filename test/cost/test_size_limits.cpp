// Every integer of a spec at its limits: a clear error, or figures without overflow.

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "catch.h"
#include "cost/figures.h"
#include "cost/make_experiment.h"
#include "cost/step_limits.h"
#include "experiment/load.h"
#include "message_of.h"
#include "optim/registry.h"
#include "spec/error.h"
#include "spec/json_fields.h"
#include "spec/one_of.h"
#include "spec/visit.h"

namespace sdp {
namespace {

/// Keys of all integers, in every kind of a section, with their limits.
template <HasFields Spec>
void collect_integers(const std::string& parent, std::map<std::string, Limits>& keys) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*) {
    const std::string key = dotted(parent, field.key);
    if constexpr (HasFields<T>)
      collect_integers<T>(key, keys);
    else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>)
      keys.try_emplace(key, field.limits);
    if constexpr (KindOfSeveral<T>)
      for_each_kind<T>([&]<class Kind>() { collect_integers<Kind>(parent, keys); });
  });
}

ExperimentSpec spec_of(const std::string& model, const std::vector<std::string>& overrides) {
  const std::string data = model.starts_with("llama") ? "{name: tokens, path: .}" : "{path: .}";
  const std::string text = "name: limits\nmodel: {name: " + model + "}\ndata: " + data +
                           "\nsubnetwork: {workers: 2, coverage: 1/2, assignment: window}\n";
  return parse_spec(text, "x.yaml", overrides, NamedFiles::kNotNeeded).spec;
}

/// The plan of a spec with all its figures; the error if it is refused.
struct Figures {
  std::string error;
  nlohmann::ordered_json plan = {};
};

Figures figures_of(const std::string& model, const std::vector<std::string>& overrides) {
  static std::vector<RecordedModel> recorded;
  Figures figures;
  figures.error = message_of<UsageError>([&] {
    const ExperimentSpec spec = spec_of(model, overrides);
    const int64_t processes = spec.subnetwork.workers * spec.subnetwork.replicas;
    const DeviceProfile device = device_profile("h100", spec.train.precision);
    const Experiment experiment = make_experiment(spec, processes, std::nullopt, std::nullopt, &recorded);
    figures.plan = json_of(figures_of(experiment, device));
  });
  return figures;
}

/// The first impossible number of a plan; empty if there is none.
std::string nonsense_in(const nlohmann::ordered_json& json, const std::string& path = "") {
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items())
      if (std::string found = nonsense_in(value, path + "/" + key); !found.empty()) return found;
    return {};
  }
  const bool is_wrong =
      json.is_null() || (json.is_number() && !(json.get<double>() >= 0 && std::isfinite(json.get<double>())));
  return is_wrong ? path + " = " + json.dump() : "";
}

TEST_CASE("integers of a spec at their limits and beyond give an error or a plan without invalid figures") {
  for (const std::string model : {"resnet18", "swin_t", "llama_tiny", "mlp"}) {
    std::map<std::string, Limits> keys;
    collect_integers<ExperimentSpec>("", keys);
    CHECK(keys.size() > 30);
    // Those of the other sections once; a model's own.
    std::erase_if(keys, [&](const auto& key) { return model != "mlp" || key.first.starts_with("model."); });
    spec_of(model, {}).model.kind.visit(
        [&]<class Kind>(const Kind&) { collect_integers<Kind>("model", keys); });
    if (model == "llama_tiny") collect_integers<TokensSpec>("data", keys);
    const Figures usual = figures_of(model, {});
    REQUIRE(usual.error == "");
    for (const auto& [key, limits] : keys) {
      const bool is_seed = key == "seed";
      CHECK((is_seed || limits.has_max()));
      for (const int64_t value : {int64_t{1} << 31, std::numeric_limits<int64_t>::max()}) {
        const std::string error =
            message_of<UsageError>([&] { spec_of(model, {key + "=" + std::to_string(value)}); });
        CAPTURE(model, key, value);
        const bool may_be = is_seed || limits.contains(static_cast<double>(value));
        CHECK((error == "") == may_be);
        if (!may_be) CHECK(error.find(key) != std::string::npos);
      }
      if (is_seed || key == "subnetwork.workers" || key == "subnetwork.replicas") continue;  // below
      const auto most = static_cast<int64_t>(limits.max);
      const Figures figures = figures_of(model, {key + "=" + std::to_string(most)});
      CAPTURE(model, key, most, figures.error);
      if (figures.error != "") continue;
      CHECK(nonsense_in(figures.plan) == "");
      CHECK(figures.plan["dense"]["parameters"] >= 1);
      if (key.starts_with("model.") && key != "model.kv_heads" && key != "model.patch_size")
        CHECK(figures.plan["dense"]["parameters"] >= usual.plan["dense"]["parameters"]);
      if (key.starts_with("train."))
        CHECK(figures.plan["dense"]["activation_bytes"] >= usual.plan["dense"]["activation_bytes"]);
    }
  }
}

TEST_CASE("the largest numbers together give an error or a plan without invalid figures") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"resnet18", {"model.width=32768", "model.image_size=4096", "model.num_classes=1048576"}},
      {"resnet18", {"model.width=32768", "model.width_multiplier=32768"}},
      {"swin_t",
       {"model.width=32768", "model.depths=[2048,1]", "model.num_heads=[1,1]", "model.image_size=4096",
        "model.patch_size=1", "model.window_size=256"}},
      {"mlp", {"model.width=32768", "model.hidden_width=1048576", "model.image_size=4096"}},
      {"mlp", {"model.width=32768", "model.hidden_width=1048576", "model.depth=2048"}},
      {"llama_tiny",
       {"model.width=32768", "model.heads=16384", "model.hidden_width=1048576", "model.vocab_size=16777216",
        "data.sequence_length=1048576"}},
      {"llama_tiny", {"model.width=32768", "model.depth=2048"}},
      {"llama_tiny", {"train.batch_size_per_worker=1048576", "data.sequence_length=1048576"}},
      {"mlp", {"train.batch_size_per_worker=1048576", "train.accumulate_steps=1048576"}},
      {"mlp", {"subnetwork.workers=1024", "subnetwork.replicas=16384"}},
      {"mlp", {"subnetwork.replicas=8192", "train.batch_size_per_worker=65536"}}};
  int planned = 0;
  for (const auto& [model, overrides] : cases) {
    const Figures figures = figures_of(model, overrides);
    CAPTURE(model, overrides.front(), figures.error);
    if (figures.error != "") continue;
    ++planned;
    CHECK(nonsense_in(figures.plan) == "");
  }
  CHECK(planned > 0);
}

TEST_CASE("one value per channel of a BatchNorm is refused, as PyTorch refuses it in training") {
  const auto is_refused = [](const std::string& model, const std::vector<std::string>& overrides) {
    const ExperimentSpec spec = spec_of(model, overrides);
    return !message_of<UsageError>([&] { check_batch_norms(structure_of(spec.model), spec); }).empty();
  };
  for (const char* model : {"resnet18", "resnet50"})
    for (const std::string stem : {"imagenet", "cifar"})
      for (const int64_t size : {8, 16, 32, 33})
        for (const int64_t batch : {1, 2}) {
          // Of the last stage: the ImageNet stem quarters the image, three stages halve it, each time rounded
          // up.
          int64_t side = size;
          for (int i = 0; i < (stem == "imagenet" ? 5 : 3); ++i)
            side = (side + 1) / 2;
          INFO(model << ", " << stem << ", " << size << ", " << batch);
          CHECK(is_refused(model, {"model.stem=" + stem, "model.image_size=" + std::to_string(size),
                                   "train.batch_size_per_worker=" + std::to_string(batch)}) ==
                (side * side * batch == 1));
        }
  CHECK(is_refused("resnet18", {"model.image_size=8", "eval.batch_size=1", "eval.recalibrate_batches=5"}));
}

}  // namespace
}  // namespace sdp
