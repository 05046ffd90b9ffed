#include "model/llama/llama_spec.h"

#include <algorithm>

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
  vocab_size = vocab_size.value_or(size.vocab_size);
}

void LlamaSpec::check(const Positions& positions) const {
  check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
  check_multiple(positions, "model.heads", *heads, "model.kv_heads", *kv_heads,
                 "every key/value head serves the same number of heads");
  if (*width / *heads % 2 != 0)
    fail_at(positions.of("model.heads"), "model.heads",
            "found " + std::to_string(*heads) + " heads of size " + std::to_string(*width / *heads) +
                ", expected an even size: rotary embeddings rotate pairs of elements");
}

LlamaSpec LlamaSpec::tiny() {
  return {.width = 8, .hidden_width = 24, .heads = 4, .vocab_size = 32};
}

}  // namespace sdp
