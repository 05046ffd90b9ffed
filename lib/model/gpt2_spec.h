#pragma once

#include <array>

#include "model/model_row.h"

namespace sdp {

/// GPT-2 (Radford et al. 2019) with the names of Hugging Face transformers' GPT2LMHeadModel, whose Conv1D
/// layers have weights [in, out]. The head is tied to the token embedding.
struct Gpt2Spec {
  static constexpr auto names =
      std::to_array<std::string_view>({"gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl"});
  static constexpr bool reads_tokens = true;
  static constexpr bool has_batch_norm = false;
  static constexpr bool normalizes_branch_output = false;
  static constexpr int branches_per_block = 2;
  static constexpr Treatment treatment = kModelTreatment;

  std::optional<int64_t> width = {};
  std::optional<int64_t> depth = {};
  std::optional<int64_t> hidden_width = {};
  std::optional<int64_t> heads = {};
  std::optional<int64_t> vocab_size = {};
  int64_t context_length = 1024;

  bool operator==(const Gpt2Spec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("width", &Gpt2Spec::width, "channels of the residual stream", in_range(1, kMostWidth));
    field("depth", &Gpt2Spec::depth, "number of transformer blocks", in_range(1, 2048));
    field("hidden_width", &Gpt2Spec::hidden_width, "hidden neurons of each MLP; unset: 4 times `width`",
          in_range(1, 1 << 20));
    field("heads", &Gpt2Spec::heads, "number of attention heads; unset: heads of 64 elements",
          in_range(1, kMostWidth));
    field("vocab_size", &Gpt2Spec::vocab_size, "number of tokens in the vocabulary; unset: 50257",
          in_range(2, 1 << 24));
    field("context_length", &Gpt2Spec::context_length,
          "number of position embeddings, and length of the longest sequence that the model reads",
          in_range(1, 1 << 20), "tokens");
  }

  void resolve(std::string_view name);
  void check(const Positions& positions) const;
  static Gpt2Spec tiny();
  std::optional<int64_t> most_tokens() const { return context_length; }
};

/// transformers' layer_norm_epsilon for all sizes.
inline constexpr double kGpt2NormEps = 1e-5;

ModelLayout layout_of(const Gpt2Spec& spec, int64_t sequence_length);
std::unique_ptr<Model> make_model(const Gpt2Spec& spec, const DropRates& drop);
std::unique_ptr<LibraryFormat> library_format(const Gpt2Spec& spec);

}  // namespace sdp
