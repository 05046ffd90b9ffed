// Layouts as plain values: sizes of the presets.

#include <fmt/format.h>

#include "capture/layouts.h"
#include "catch.h"

namespace sdp {
namespace {

ModelLayout preset(std::string_view name) {
  return layout_of(model_named(name), /*sequence_length=*/1024);
}

int64_t elements_of(const ModelLayout& layout, const std::string& parameter) {
  return layout.parameters[layout.parameter_index(parameter)].elements();
}

TEST_CASE("the LLaMAs have the sizes that their names state, including both embeddings") {
  struct Size {
    std::string_view name;
    double parameters;
    int64_t without_embeddings;  // 4 width^2 + 3 width hidden_width + 2 width per block, and the last norm
  };
  const Size sizes[] = {
      {"llama_134m", 134e6, 12 * (4 * 768 * 768 + 3 * 768 * 2048 + 2 * 768) + 768},
      {"llama_500m", 500e6, 14 * (4 * 1536 * 1536 + 3 * 1536 * 4096 + 2 * 1536) + 1536},
      {"llama_1b", 1e9, 18 * (4 * 2048 * 2048 + 3 * 2048 * 5120 + 2 * 2048) + 2048},
  };
  for (const Size& size : sizes) {
    const ModelLayout layout = preset(size.name);
    const int64_t all = layout.parameter_count();
    const int64_t rest =
        all - elements_of(layout, "model.embed_tokens.weight") - elements_of(layout, "lm_head.weight");
    INFO(fmt::format("{}: {} parameters, {} without embeddings", layout.name, all, rest));
    CHECK(static_cast<double>(all) == Approx(size.parameters).epsilon(0.03));
    CHECK(rest == size.without_embeddings);
  }
}

TEST_CASE("GPT-2's sizes match the transformers library") {
  // Sums over GPT2LMHeadModel.parameters() of gpt2, gpt2-medium, gpt2-large and gpt2-xl.
  CHECK(preset("gpt2").parameter_count() == 124'439'808);
  CHECK(preset("gpt2_medium").parameter_count() == 354'823'168);
  CHECK(preset("gpt2_large").parameter_count() == 774'030'080);
  CHECK(preset("gpt2_xl").parameter_count() == 1'557'611'200);
}

TEST_CASE("a tied head adds no parameter and computes the same products") {
  ModelSpec spec = model_named("llama_tiny");
  LlamaSpec& llama = spec.kind.as<LlamaSpec>();
  const ModelLayout untied = layout_of(spec, 64);
  llama.tied_embeddings = true;
  const ModelLayout tied = layout_of(spec, 64);
  CHECK(untied.parameter_count() - tied.parameter_count() == *llama.vocab_size * *llama.width);
  CHECK(untied.shared_flops.training() == tied.shared_flops.training());
}

TEST_CASE("branches of a LLaMA are divided by key/value heads and by neurons") {
  ModelSpec spec{.kind = LlamaSpec{.heads = 8, .kv_heads = 2}};
  resolve_model(spec);
  const LlamaSpec& llama = spec.kind.as<LlamaSpec>();
  const ModelLayout layout = layout_of(spec, 64);
  REQUIRE(layout.branches.size() == static_cast<size_t>(2 * *llama.depth));
  CHECK(layout.branches[0].hidden_width == 2);
  CHECK(layout.branches[1].hidden_width == *llama.hidden_width);
  CHECK(layout.branches[0].flops.frozen_recompute == 0);
  // gate and up, without down
  CHECK(layout.branches[1].flops.frozen_recompute == Approx(layout.branches[1].flops.forward * 2 / 3));
  // A frozen attention lacks the gradients of its weights and recomputes nothing.
  double weights = 0;
  for (const ParameterLayout& parameter : layout.parameters)
    if (parameter.branch == 0 && parameter.slice) weights += static_cast<double>(parameter.elements());
  const Flops &attention = layout.branches[0].flops, &mlp = layout.branches[1].flops;
  CHECK(attention.training() - attention.training_frozen() == 2 * 64 * weights);
  // A frozen MLP is computed, recomputed without its down projection, and passes on the gradient of its
  // input.
  CHECK(mlp.training() == Approx(3 * mlp.forward));
  CHECK(mlp.training_frozen() == Approx((1 + 2.0 / 3 + 1) * mlp.forward));
  for (const ParameterLayout& parameter : layout.parameters) {
    if (!parameter.slice) continue;
    INFO(parameter.name);
    const SliceRule& rule = *parameter.slice;
    CHECK(parameter.shape[static_cast<size_t>(rule.dim)] ==
          rule.blocks * layout.branches[*parameter.branch].hidden_width * rule.elements_per_hidden);
  }
}

}  // namespace
}  // namespace sdp
