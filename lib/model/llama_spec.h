#pragma once

#include <array>

#include "model/model_row.h"

namespace sdp {

/// Stretches the rotary embedding for longer contexts, as LLaMA 3.1 does (rope_type llama3 of transformers,
/// whose names these are): wavelengths above original_context / low_freq_factor are
/// multiplied by `factor`, those below original_context / high_freq_factor are kept, and
/// those between are interpolated.
struct RopeScaling {
  static constexpr Treatment treatment = kModelTreatment;

  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;

  bool operator==(const RopeScaling&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("factor", &RopeScaling::factor, "factor on long wavelengths; 1: no scaling", at_least(1));
    field("low_freq_factor", &RopeScaling::low_freq_factor,
          "wavelengths above the original context divided by this are scaled", positive());
    field("high_freq_factor", &RopeScaling::high_freq_factor,
          "wavelengths below the original context divided by this are kept", positive());
    field("original_context", &RopeScaling::original_context, "the context before scaling",
          in_range(1, 1 << 24), "tokens");
  }
};

/// LLaMA (Touvron et al. 2023), also of versions 3.1 and 3.2, with the names of Hugging Face transformers'
/// LlamaForCausalLM.
struct LlamaSpec {
  static constexpr auto names =
      std::to_array<std::string_view>({"llama_tiny", "llama_134m", "llama_500m", "llama_1b"});
  static constexpr bool reads_tokens = true;
  static constexpr bool has_batch_norm = false;
  static constexpr bool normalizes_branch_output = false;
  static constexpr int branches_per_block = 2;
  static constexpr Treatment treatment = kModelTreatment;

  std::optional<int64_t> width = {};
  std::optional<int64_t> depth = {};
  std::optional<int64_t> hidden_width = {};
  std::optional<int64_t> heads = {};
  std::optional<int64_t> kv_heads = {};
  std::optional<int64_t> head_size = {};
  std::optional<int64_t> vocab_size = {};
  bool tied_embeddings = false;
  double rope_theta = 10000;
  double norm_eps = 1e-5;
  RopeScaling rope_scaling = {};

  bool operator==(const LlamaSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("width", &LlamaSpec::width, "channels of the residual stream", in_range(1, kMostWidth));
    field("depth", &LlamaSpec::depth, "number of transformer blocks", in_range(1, 2048));
    field("hidden_width", &LlamaSpec::hidden_width,
          "hidden neurons of each MLP; unset: in proportion to `width`", in_range(1, 1 << 20));
    field("heads", &LlamaSpec::heads, "number of attention heads; unset: as many as keep their size",
          in_range(1, kMostWidth));
    field("kv_heads", &LlamaSpec::kv_heads,
          "number of key/value heads; fewer than `heads` is grouped-query attention; unset: `heads`",
          in_range(1, kMostWidth));
    field("head_size", &LlamaSpec::head_size, "elements of an attention head; unset: `width` / `heads`",
          in_range(2, kMostWidth));
    field("vocab_size", &LlamaSpec::vocab_size, "number of tokens in the vocabulary", in_range(2, 1 << 24));
    field("tied_embeddings", &LlamaSpec::tied_embeddings, "use the token embedding as the head");
    field("rope_theta", &LlamaSpec::rope_theta, "base of the rotary embedding's frequencies", positive());
    field("norm_eps", &LlamaSpec::norm_eps, "added to the mean square in RMSNorm, for numerical stability",
          positive());
    field("rope_scaling", &LlamaSpec::rope_scaling, "scaling of the rotary embedding, as in LLaMA 3.1");
  }

  /// Sets the unset sizes to those of the name, or to what follows from the width if that is set.
  void resolve(std::string_view name);
  void check(const Positions& positions) const;
  static LlamaSpec tiny();
  std::optional<int64_t> most_tokens() const { return std::nullopt; }
};

ModelLayout layout_of(const LlamaSpec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const LlamaSpec& spec, const DropRates& drop);
std::unique_ptr<LibraryFormat> library_format(const LlamaSpec& spec);

}  // namespace sdp
