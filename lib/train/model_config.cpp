#include "train/model_config.h"

#include <fmt/format.h>

#include <fstream>
#include <set>

#include "spec/error.h"
#include "spec/model_defaults.h"
#include "spec/print.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

/// The sizes of a LLaMA that transformers' configuration can say.
struct LlamaShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t hidden_width = 0;
};

Json llama_config(const ExperimentSpec& spec, const LlamaShape& shape) {
  const ModelSpec& model = spec.model;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"hidden_size", *model.width},
          {"intermediate_size", shape.hidden_width},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", *model.heads / *model.kv_heads * shape.kv_heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", *model.width / *model.heads},
          {"vocab_size", *model.vocab_size},
          {"max_position_embeddings", spec.data.sequence_length},
          {"rms_norm_eps", model.norm_eps},
          {"rope_theta", model.rope_theta},
          {"tie_word_embeddings", model.tied_embeddings},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"torch_dtype", spec.train.precision == Precision::kFp64 ? "float64" : "float32"}};
}

Json origin(const Experiment& experiment, const Manifest& manifest) {
  const ExperimentSpec& spec = experiment.spec;
  Json origin = {
      {"model", name_of(spec.model.name)}, {"step", manifest.step}, {"plan_hash", manifest.plan_hash}};
  if (!is_llama(spec.model.name)) origin["num_classes"] = spec.model.num_classes;
  return origin;
}

/// [begin, end) ranges of a branch's hidden width that the worker owns, neighbours joined.
std::vector<std::pair<int64_t, int64_t>> owned_ranges(const SubnetPlan& plan, int worker, int branch) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const BranchPart& part : plan.parts_of(worker, branch)) {
    for (int unit : part.units) {
      const auto [begin, end] = std::pair(plan.units[unit].begin, plan.units[unit].end);
      if (!ranges.empty() && ranges.back().second == begin) {
        ranges.back().second = end;
      } else {
        ranges.emplace_back(begin, end);
      }
    }
  }
  return ranges;
}

int64_t width_of(const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  int64_t width = 0;
  for (const auto& [begin, end] : ranges)
    width += end - begin;
  return width;
}

}  // namespace

Json full_model_config(const Experiment& experiment, const Manifest& manifest) {
  const ModelSpec& model = experiment.spec.model;
  Json config = Json::object();
  if (is_llama(model.name))
    config = llama_config(experiment.spec, {*model.depth, *model.kv_heads, *model.hidden_width});
  config["sdp_train"] = origin(experiment, manifest);
  return config;
}

void check_library_config(const ExperimentSpec& spec, const std::filesystem::path& weights) {
  const std::filesystem::path path = weights.parent_path() / "config.json";
  std::ifstream file(path);
  if (!file || !is_llama(spec.model.name)) return;
  const Json config = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw DataError(fmt::format("{}: is not a JSON object", path.string()));
  const Json expected =
      llama_config(spec, {*spec.model.depth, *spec.model.kv_heads, *spec.model.hidden_width});
  for (const char* key : {"num_attention_heads", "num_key_value_heads", "rope_theta", "rms_norm_eps",
                          "tie_word_embeddings", "hidden_act", "attention_bias", "mlp_bias"})
    if (config.contains(key) && !config[key].is_null() && config[key] != expected[key])
      throw DataError(
          fmt::format("{}: {} is {}, but `model` of the spec says {}. Set the spec's to the file's.",
                      path.string(), key, config[key].dump(), expected[key].dump()));
  if (config.contains("rope_scaling") && !config["rope_scaling"].is_null())
    throw DataError(
        fmt::format("{}: rope_scaling is {}, expected none: scaled rotary embeddings are not supported",
                    path.string(), config["rope_scaling"].dump()));
}

SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest, int worker) {
  const SubnetPlan& plan = experiment.plan;
  SubnetworkConfig result{.config = Json::object(), .layer_names = {}};
  Json hidden = Json::object();
  std::map<int, std::vector<int64_t>> widths_of_block;  // attention, MLP
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b) {
    const auto ranges = owned_ranges(plan, worker, b);
    hidden[plan.layout.branches[b].name] = ranges;
    widths_of_block[plan.layout.branches[b].block].push_back(width_of(ranges));
  }
  if (is_llama(experiment.spec.model.name)) {
    std::map<std::string, std::string> names;
    std::set<std::vector<int64_t>> shapes;
    for (const auto& [block, widths] : widths_of_block) {
      if (widths == std::vector<int64_t>{0, 0}) continue;
      shapes.insert(widths);
      names[fmt::format("model.layers.{}", block)] = fmt::format("model.layers.{}", names.size());
    }
    const bool alike = shapes.size() == 1 && shapes.begin()->front() > 0 && shapes.begin()->back() > 0;
    if (alike) {
      const std::vector<int64_t>& widths = *shapes.begin();
      result.config =
          llama_config(experiment.spec, {static_cast<int64_t>(names.size()), widths.front(), widths.back()});
      result.layer_names = std::move(names);
    }
  }
  result.config["sdp_train"] = origin(experiment, manifest);
  result.config["sdp_train"]["worker"] = worker;
  result.config["sdp_train"]["construction"] = name_of(plan.construction);
  result.config["sdp_train"]["hidden"] = hidden;
  return result;
}

}  // namespace sdp
