// The config.json of Hugging Face transformers' GPT2LMHeadModel.

#include <ATen/core/Tensor.h>

#include "model/gpt2_spec.h"
#include "model/library_format.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

class Gpt2Format : public LibraryFormat {
 public:
  explicit Gpt2Format(const Gpt2Spec& spec) : spec_(spec) {}

  std::string_view model_type() const override { return "gpt2"; }

  /// transformers computes the head size as the width divided by the number of heads, so it cannot express an
  /// attention with only some of the heads.
  Json config(const BlockShape& shape, int64_t /*sequence_length*/) const override {
    if (shape.hidden_widths.at(0) != *spec_.heads) return Json::object();
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", std::string(model_type())},
            {"activation_function", "gelu_new"},
            {"n_embd", *spec_.width},
            {"n_inner", shape.hidden_widths.at(1)},
            {"n_layer", shape.blocks},
            {"n_head", *spec_.heads},
            {"n_positions", spec_.context_length},
            {"vocab_size", *spec_.vocab_size},
            {"layer_norm_epsilon", kGpt2NormEps},
            {"tie_word_embeddings", true},
            {"scale_attn_weights", true},
            {"scale_attn_by_inverse_layer_idx", false},
            {"add_cross_attention", false}};
  }

  /// Defaults: transformers.GPT2Config of versions 4.57 and 5.
  std::vector<ConfigKey> compared_keys() const override {
    return {{"n_embd", "width", 768},
            {"n_layer", "depth", 12},
            {"n_inner", "hidden_width", nullptr},
            {"n_head", "heads", 12},
            {"n_positions", "context_length", 1024},
            {"vocab_size", "vocab_size", 50257},
            {"activation_function", nullptr, "gelu_new"},
            {"layer_norm_epsilon", nullptr, 1e-5},
            {"tie_word_embeddings", nullptr, true},
            {"scale_attn_weights", nullptr, true},
            {"scale_attn_by_inverse_layer_idx", nullptr, false},
            {"add_cross_attention", nullptr, false}};
  }

  Json normalized(Json found, const RefuseConfig&) const override {
    // GPT2Config.attribute_map: names that take precedence.
    for (const auto& [alias, key] : {std::pair("hidden_size", "n_embd"),
                                     {"max_position_embeddings", "n_positions"},
                                     {"num_attention_heads", "n_head"},
                                     {"num_hidden_layers", "n_layer"}})
      if (found.contains(alias)) {
        found[key] = found[alias];
        found.erase(alias);
      }
    // Two names for the same function.
    if (found.value("activation_function", Json()) == "gelu_pytorch_tanh")
      found["activation_function"] = "gelu_new";
    return found;
  }

  void derive(Json& found) const override {
    if (found["n_inner"].is_null() && found["n_embd"].is_number_integer())
      found["n_inner"] = 4 * found["n_embd"].get<int64_t>();
  }

  std::string block_name(int64_t block) const override { return "transformer.h." + std::to_string(block); }

  /// Files of GPT2Model, which has no head, have names without this prefix.
  std::string_view optional_prefix() const override { return "transformer."; }

  /// The causal mask of every attention, which old versions of transformers saved.
  bool is_redundant(std::string_view name) const override {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  }

  std::string_view repeated_by(std::string_view name) const override {
    return name == "lm_head.weight" ? "transformer.wte.weight" : "";
  }

 private:
  const Gpt2Spec spec_;
};

}  // namespace

std::unique_ptr<LibraryFormat> library_format(const Gpt2Spec& spec) {
  return std::make_unique<Gpt2Format>(spec);
}

}  // namespace sdp
