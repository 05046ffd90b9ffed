#include "hub/model_config.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "data/normalization.h"
#include "spec/model_defaults.h"
#include "spec/visit.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(bool value) {
  return value;
}
Json json_of(int64_t value) {
  return value;
}
Json json_of(double value) {
  return value;
}
template <NamedEnum Enum>
Json json_of(Enum value) {
  return name_of(value);
}
template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json();
}
/// With as many digits as it takes.
Json json_of(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values)
    list.push_back(std::stod(fmt::format("{}", value)));
  return list;
}

/// The sizes of a LLaMA that transformers' configuration can say.
struct LlamaShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t hidden_width = 0;
};

Json llama_config(const ExperimentSpec& spec, const LlamaShape& shape, const TokenOrigin& tokens) {
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
          // Without these transformers assumes 1 and 2, and generation stops at the latter. Documents are
          // divided by one token, which begins and ends them.
          {"bos_token_id", json_of(tokens.end_of_text)},
          {"eos_token_id", json_of(tokens.end_of_text)},
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
  Json origin = {{"model", model_json(spec.model)}};
  if (spec.data.name != DatasetName::kTokens) {
    const Normalization& normalization = normalization_of(spec.data.name);
    origin["normalization"] = {{"mean", json_of(normalization.mean)}, {"std", json_of(normalization.stddev)}};
  }
  origin["step"] = manifest.step;
  origin["plan_hash"] = manifest.plan_hash;
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

Json model_json(const ModelSpec& model) {
  Json json = Json::object();
  for_each_field<ModelSpec>([&]<class T>(const FieldInfo& field, T ModelSpec::*member) {
    const bool is_of_training = field.key == "dropout" || field.key == "stochastic_depth";
    if (!is_of_training && model_uses(model.name, field.key))
      json[std::string(field.key)] = json_of(model.*member);
  });
  return json;
}

Json transformers_config(const ExperimentSpec& spec, const TokenOrigin& tokens) {
  const ModelSpec& model = spec.model;
  return llama_config(spec, {*model.depth, *model.kv_heads, *model.hidden_width}, tokens);
}

Json full_model_config(const Experiment& experiment, const Manifest& manifest, const TokenOrigin& tokens) {
  Json config = Json::object();
  if (is_llama(experiment.spec.model.name)) config = transformers_config(experiment.spec, tokens);
  config["sdp_train"] = origin(experiment, manifest);
  return config;
}

SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest,
                                   const TokenOrigin& tokens, int worker) {
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
      result.config = llama_config(
          experiment.spec, {static_cast<int64_t>(names.size()), widths.front(), widths.back()}, tokens);
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
