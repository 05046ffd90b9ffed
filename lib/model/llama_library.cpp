// The config.json of Hugging Face transformers' LlamaForCausalLM.

#include <ATen/core/Tensor.h>

#include "model/library_format.h"
#include "model/llama_spec.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kScaledType = "llama3";
constexpr const char* kRotaryShare = "partial_rotary_factor";  // of a head's width; 1 without the key

std::string library_key(std::string_view key) {
  return key == "original_context" ? "original_max_position_embeddings" : std::string(key);
}

/// The library's scaling with the keys of RopeScaling; those that are absent have its defaults.
Json scaling_keys(const Json& rope) {
  Json keys = Json::object();
  const RopeScaling defaults;
  for_each_field<RopeScaling>([&](const FieldInfo& field, auto member) {
    const std::string key = library_key(field.key);
    keys[std::string(field.key)] =
        rope.is_object() && rope.contains(key) ? rope[key] : Json(defaults.*member);
  });
  return keys;
}

/// rope_scaling of config.json.
Json scaling_json(const RopeScaling& scaling) {
  if (scaling.factor == 1) return nullptr;
  Json json = {{"rope_type", kScaledType}};
  for_each_field<RopeScaling>(
      [&](const FieldInfo& field, auto member) { json[library_key(field.key)] = scaling.*member; });
  return json;
}

class LlamaFormat : public LibraryFormat {
 public:
  explicit LlamaFormat(const LlamaSpec& spec) : spec_(spec) {}

  std::string_view model_type() const override { return "llama"; }

  Json config(const BlockShape& shape, int64_t sequence_length) const override {
    const int64_t kv_heads = shape.hidden_widths.at(0);  // of the attention
    const int64_t hidden_width = shape.hidden_widths.at(1);
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", std::string(model_type())},
            {"hidden_act", "silu"},
            {"hidden_size", *spec_.width},
            {"intermediate_size", hidden_width},
            {"num_hidden_layers", shape.blocks},
            {"num_attention_heads", *spec_.heads / *spec_.kv_heads * kv_heads},
            {"num_key_value_heads", kv_heads},
            {"head_dim", *spec_.head_size},
            {"vocab_size", *spec_.vocab_size},
            {"max_position_embeddings", sequence_length},
            {"rms_norm_eps", spec_.norm_eps},
            {"rope_theta", spec_.rope_theta},
            {"rope_scaling", scaling_json(spec_.rope_scaling)},
            {"tie_word_embeddings", spec_.tied_embeddings},
            {"attention_bias", false},
            {"mlp_bias", false}};
  }

  /// Defaults: transformers.LlamaConfig of versions 4.57 and 5.
  std::vector<ConfigKey> compared_keys() const override {
    return {{"hidden_size", "width", 4096},
            {"num_hidden_layers", "depth", 32},
            {"intermediate_size", "hidden_width", 11008},
            {"num_attention_heads", "heads", 32},
            {"num_key_value_heads", "kv_heads", nullptr},
            {"head_dim", "head_size", nullptr},
            {"vocab_size", "vocab_size", 32000},
            {"rope_theta", "rope_theta", 10000.0},
            {"rope_scaling", "rope_scaling", scaling_keys(Json())},
            {"rms_norm_eps", "norm_eps", 1e-6},
            {"tie_word_embeddings", "tied_embeddings", false},
            {"hidden_act", nullptr, "silu"},
            {"attention_bias", nullptr, false},
            {"mlp_bias", nullptr, false}};
  }

  Json normalized(Json found, const RefuseConfig& refuse) const override {
    // Version 5 of transformers has the base and the type in one object, version 4 only the type.
    Json scaling = scaling_keys(Json());
    Json known = scaling_json({.factor = 2});
    known.update({{"type", nullptr}, {"rope_theta", nullptr}});
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const Json rope = found.value(key, Json());
      if (!rope.is_object()) continue;
      const Json type = rope.value("rope_type", rope.value("type", Json("default")));
      if (type == kScaledType) scaling = scaling_keys(rope);
      if (type != "default" && type != kScaledType)
        refuse("the type of rotary embedding", type, "\"default\" or \"llama3\"");
      for (const auto& [name, value] : rope.items())
        if (!known.contains(name) && !value.is_null() && !(name == kRotaryShare && value == 1))
          refuse(std::string(key) + "." + name, value, "its absence");
      if (!rope.contains("rope_theta")) continue;
      const Json& theta = rope["rope_theta"];
      if (found.value("rope_theta", theta) != theta)
        refuse(std::string(key) + ".rope_theta", theta, "the same value as in rope_theta");
      found["rope_theta"] = theta;
    }
    found["rope_scaling"] = scaling;
    if (found.value(kRotaryShare, Json()) == 1) found.erase(kRotaryShare);
    return found;
  }

  void derive(Json& found) const override {
    if (found["num_key_value_heads"].is_null()) found["num_key_value_heads"] = found["num_attention_heads"];
    const auto number = [&](const char* key) {
      return found[key].is_number_integer() ? found[key].get<int64_t>() : 0;
    };
    if (found["head_dim"].is_null() && number("num_attention_heads") > 0)
      found["head_dim"] = number("hidden_size") / number("num_attention_heads");
  }

  std::string block_name(int64_t block) const override { return "model.layers." + std::to_string(block); }

  /// Files of LlamaModel, which has no head, have names without this prefix.
  std::string_view optional_prefix() const override { return "model."; }

  /// Frequencies that old versions of transformers saved and that none reads.
  bool is_redundant(std::string_view name) const override { return name.ends_with(".rotary_emb.inv_freq"); }

  std::string_view repeated_by(std::string_view name) const override {
    return spec_.tied_embeddings && name == "lm_head.weight" ? "model.embed_tokens.weight" : "";
  }

 private:
  const LlamaSpec spec_;
};

}  // namespace

std::unique_ptr<LibraryFormat> library_format(const LlamaSpec& spec) {
  return std::make_unique<LlamaFormat>(spec);
}

}  // namespace sdp
