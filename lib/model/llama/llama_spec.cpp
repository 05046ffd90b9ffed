#include "model/llama/llama_spec.h"

#include <algorithm>

#include "spec/value_text.h"

namespace sdp {
namespace {

struct LlamaSize {
  std::string_view name;
  int64_t depth, width, hidden_width, heads, vocab_size;

  /// Of another width, with the same ratio; a multiple of 16, as the hidden widths of all sizes are.
  int64_t hidden_width_of(int64_t other_width) const {
    constexpr int64_t kMultiple = 16;
    return (hidden_width * other_width + kMultiple * width - 1) / (kMultiple * width) * kMultiple;
  }
};

// 134M, 500M and 1B: parameter counts, including embedding and head, are within 2 % of the names. Heads have
// 64 or 128 elements.
constexpr auto kSizes = std::to_array<LlamaSize>({
    {"llama_tiny", 4, 64, 176, 4, 50257},
    {"llama_134m", 12, 768, 2048, 12, 32000},
    {"llama_500m", 14, 1536, 4096, 24, 32000},
    {"llama_1b", 18, 2048, 5120, 16, 32000},
});

}  // namespace

void LlamaSpec::resolve(std::string_view name) {
  const LlamaSize& size =
      *std::find_if(kSizes.begin(), kSizes.end(), [&](const LlamaSize& s) { return s.name == name; });
  depth = depth.value_or(size.depth);
  width = width.value_or(size.width);
  hidden_width = hidden_width.value_or(size.hidden_width_of(*width));
  heads = heads.value_or(heads_of_width(*width, size.width / size.heads));
  kv_heads = kv_heads.value_or(*heads);
  head_size = head_size.value_or(*width / *heads);
  vocab_size = vocab_size.value_or(size.vocab_size);
}

void LlamaSpec::check(const Positions& positions) const {
  const bool has_own_size = positions.is_set("model.head_size");
  if (!has_own_size)
    check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
  check_multiple(positions, "model.heads", *heads, "model.kv_heads", *kv_heads,
                 "every key/value head serves the same number of heads");
  const std::string key = has_own_size ? "model.head_size" : "model.heads";
  if (*head_size % 2 != 0)
    fail_at(positions.of(key), key,
            "found " + std::to_string(*heads) + " heads of size " + std::to_string(*head_size) +
                ", expected an even size: rotary embeddings rotate pairs of elements");
  if (rope_scaling.low_freq_factor >= rope_scaling.high_freq_factor)
    fail_at(positions.of("model.rope_scaling.high_freq_factor"), "model.rope_scaling.high_freq_factor",
            "found " + yaml_text(rope_scaling.high_freq_factor) +
                ", expected more than low_freq_factor, which is " + yaml_text(rope_scaling.low_freq_factor));
}

LlamaSpec LlamaSpec::tiny() {
  return {.width = 8, .hidden_width = 24, .heads = 4, .vocab_size = 32};
}

}  // namespace sdp
