#pragma once

#include <array>

#include "model/model_row.h"

namespace sdp {

/// LLaMA (Touvron et al. 2023) with the names of Hugging Face transformers' LlamaForCausalLM.
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
  std::optional<int64_t> vocab_size = {};
  bool tied_embeddings = false;
  double rope_theta = 10000;
  double norm_eps = 1e-5;

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
    field("vocab_size", &LlamaSpec::vocab_size, "number of tokens in the vocabulary", in_range(2, 1 << 24));
    field("tied_embeddings", &LlamaSpec::tied_embeddings, "use the token embedding as the head");
    field("rope_theta", &LlamaSpec::rope_theta, "base of the rotary embedding's frequencies", positive());
    field("norm_eps", &LlamaSpec::norm_eps, "added to the mean square in RMSNorm, for numerical stability",
          positive());
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
LibraryConstants library_constants(const LlamaSpec& spec, const ModelLayout& layout);

}  // namespace sdp
