#include "model/gpt2/gpt2_spec.h"

#include <algorithm>

namespace sdp {
namespace {

struct Gpt2Size {
  std::string_view name;
  int64_t depth, width, heads;
};

constexpr auto kSizes = std::to_array<Gpt2Size>({
    {"gpt2", 12, 768, 12},
    {"gpt2_medium", 24, 1024, 16},
    {"gpt2_large", 36, 1280, 20},
    {"gpt2_xl", 48, 1600, 25},
});

}  // namespace

void Gpt2Spec::resolve(std::string_view name) {
  const Gpt2Size& size =
      *std::find_if(kSizes.begin(), kSizes.end(), [&](const Gpt2Size& s) { return s.name == name; });
  depth = depth.value_or(size.depth);
  width = width.value_or(size.width);
  hidden_width = hidden_width.value_or(4 * *width);
  heads = heads.value_or(heads_of_width(*width, size.width / size.heads));
  vocab_size = vocab_size.value_or(50257);
}

void Gpt2Spec::check(const Positions& positions) const {
  check_multiple(positions, "model.width", *width, "model.heads", *heads, "all heads have the same size");
}

Gpt2Spec Gpt2Spec::tiny() {
  return {.width = 16, .depth = 2, .heads = 4, .vocab_size = 32, .context_length = 32};
}

}  // namespace sdp
