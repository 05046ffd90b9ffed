#include "spec/model_defaults.h"

#include <algorithm>
#include <array>
#include <string>

#include "spec/error.h"

namespace sdp {
namespace {

struct LlamaSize {
  ModelName name;
  int64_t depth, width, hidden_width, heads, vocab_size;
};

// 134M, 500M and 1B: within 2 % of their names with both embeddings, a head of 64 or 128.
constexpr auto kLlamaSizes = std::to_array<LlamaSize>({
    {ModelName::kLlamaTiny, 4, 64, 176, 4, 50257},
    {ModelName::kLlama134m, 12, 768, 2048, 12, 32000},
    {ModelName::kLlama500m, 14, 1536, 4096, 24, 32000},
    {ModelName::kLlama1b, 18, 2048, 5120, 16, 32000},
});

void set_default(std::optional<int64_t>& value, int64_t standard) {
  if (!value) value = standard;
}

struct Use {
  std::string_view key;
  bool (*used_by)(ModelName);
};

bool is_swin(ModelName name) {
  return name == ModelName::kSwinT;
}
bool is_mlp(ModelName name) {
  return name == ModelName::kMlp;
}
bool takes_images(ModelName name) {
  return !is_llama(name);
}
bool is_deep(ModelName name) {
  return is_llama(name) || is_mlp(name);
}

/// Keys that not every model uses.
constexpr auto kUses = std::to_array<Use>({
    {"num_classes", takes_images},
    {"stem", is_resnet},
    {"width_multiplier", is_resnet},
    {"depth", is_deep},
    {"hidden_width", is_deep},
    {"heads", [](ModelName name) { return is_llama(name) || is_swin(name); }},
    {"kv_heads", is_llama},
    {"vocab_size", is_llama},
    {"tied_embeddings", is_llama},
    {"rope_theta", is_llama},
    {"norm_eps", is_llama},
    {"image_size", takes_images},
    {"patch_size", is_swin},
    {"window_size", is_swin},
});

std::string multiple(const char* of, int64_t found, const char* divisor, int64_t by) {
  std::string text = "found ";
  text += std::to_string(found);
  text += ", expected a multiple of ";
  text += divisor;
  text += " (";
  text += std::to_string(by);
  text += "): ";
  text += of;
  return text;
}

void check_multiple(const Positions& positions, const std::string& key, int64_t value, const char* divisor,
                    int64_t by, const char* why) {
  if (value % by != 0) fail_at(positions.of(key), key, multiple(why, value, divisor, by));
}

}  // namespace

void resolve_model(ModelSpec& spec) {
  constexpr int64_t kCifarImageSize = 32;
  constexpr int64_t kImageNetImageSize = 224;
  if (is_llama(spec.name)) {
    const LlamaSize& size = *std::find_if(kLlamaSizes.begin(), kLlamaSizes.end(),
                                          [&](const LlamaSize& s) { return s.name == spec.name; });
    set_default(spec.depth, size.depth);
    set_default(spec.width, size.width);
    set_default(spec.hidden_width, size.hidden_width);
    set_default(spec.heads, size.heads);
    set_default(spec.kv_heads, *spec.heads);
    set_default(spec.vocab_size, size.vocab_size);
  } else if (is_swin(spec.name)) {
    set_default(spec.width, 96);
    set_default(spec.heads, 3);
    set_default(spec.patch_size, 4);
    set_default(spec.window_size, 7);
    set_default(spec.image_size,
                *spec.patch_size == 4 && *spec.window_size == 7 ? kImageNetImageSize : kCifarImageSize);
  } else if (is_mlp(spec.name)) {
    set_default(spec.width, 64);
    set_default(spec.depth, 4);
    set_default(spec.hidden_width, 256);
    set_default(spec.image_size, kCifarImageSize);
  } else {
    set_default(spec.width, 64);
    set_default(spec.width_multiplier, spec.name == ModelName::kWideResNet18 ? 2 : 1);
    set_default(spec.image_size, spec.stem == Stem::kImageNet ? kImageNetImageSize : kCifarImageSize);
  }
}

bool model_uses(ModelName name, std::string_view key) {
  const auto found = std::find_if(kUses.begin(), kUses.end(), [&](const Use& use) { return use.key == key; });
  return found == kUses.end() || found->used_by(name);
}

void check_model(const ModelSpec& spec, const Positions& positions) {
  if (is_resnet(spec.name) && *spec.width * *spec.width_multiplier > static_cast<int64_t>(kMostWidth))
    fail_at(positions.of("model.width"), "model.width",
            "found a width of " + std::to_string(*spec.width) + " and a width_multiplier of " +
                std::to_string(*spec.width_multiplier) + ", expected a product of at most " +
                std::to_string(static_cast<int64_t>(kMostWidth)));
  if (spec.heads && model_uses(spec.name, "heads"))
    check_multiple(positions, "model.width", *spec.width, "model.heads", *spec.heads,
                   "every head has the same share of the width");
  if (is_llama(spec.name)) {
    check_multiple(positions, "model.heads", *spec.heads, "model.kv_heads", *spec.kv_heads,
                   "every key/value head serves the same number of heads");
    if (*spec.width / *spec.heads % 2 != 0)
      fail_at(positions.of("model.heads"), "model.heads",
              "found " + std::to_string(*spec.heads) + " heads of size " +
                  std::to_string(*spec.width / *spec.heads) +
                  ", expected heads of an even size: rotary embeddings turn pairs");
  }
  if (is_swin(spec.name))
    check_multiple(positions, "model.image_size", *spec.image_size, "model.patch_size", *spec.patch_size,
                   "the image is cut into whole patches");
}

}  // namespace sdp
