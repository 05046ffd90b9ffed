#include "model/model_spec.h"

#include <stdexcept>

#include "spec/position.h"
#include "spec/value_text.h"

namespace sdp {
namespace {

/// A value that only models of images have.
template <class T, class Get>
T of_images(const ModelSpec& spec, const Get& get) {
  return spec.kind.visit([&](const auto& model) -> T {
    if constexpr (requires { model.image_size; }) {
      return get(model);
    } else {
      throw std::logic_error("a language model reads no images");
    }
  });
}

/// nullptr: a model of the program, or a spec of another program's network.
const OwnNetwork* network_of(const ModelSpec& spec) {
  return spec.kind.is<OwnSpec>() ? spec.kind.as<OwnSpec>().network.get() : nullptr;
}

}  // namespace

int64_t heads_of_width(int64_t width, int64_t head_size) {
  while (head_size > 1 && (width % head_size != 0 || head_size % 2 != 0))
    --head_size;
  return width / head_size;
}

void check_multiple(const Positions& positions, const std::string& key, int64_t value,
                    const std::string& divisor, int64_t by, const std::string& why) {
  if (value % by == 0) return;
  fail_at(positions.of(key), key,
          "found " + std::to_string(value) + ", expected a multiple of " + divisor + " (" +
              std::to_string(by) + "): " + why);
}

int64_t ModelSpec::image_size() const {
  return of_images<int64_t>(*this, [](const auto& model) { return model.image_size.value(); });
}

int64_t ModelSpec::image_channels() const {
  return of_images<int64_t>(*this, [](const auto& model) { return model.image_channels; });
}

int64_t ModelSpec::num_classes() const {
  return of_images<int64_t>(*this, [](const auto& model) { return model.num_classes; });
}

std::string_view ModelSpec::timm_architecture() const {
  return of_images<std::string_view>(*this, [](const auto& model) { return model.timm_architecture(); });
}

int64_t ModelSpec::vocab_size() const {
  return kind.visit([](const auto& model) -> int64_t {
    if constexpr (requires { model.vocab_size; }) {
      return model.vocab_size.value();
    } else {
      throw std::logic_error("an image model has no vocab_size");
    }
  });
}

std::optional<int64_t> ModelSpec::most_tokens() const {
  return kind.visit([](const auto& model) -> std::optional<int64_t> {
    if constexpr (requires { model.most_tokens(); }) {
      return model.most_tokens();
    } else {
      throw std::logic_error("an image model reads no tokens");
    }
  });
}

bool ModelSpec::draws_random_numbers() const {
  const OwnNetwork* const network = network_of(*this);
  return dropout > 0 || stochastic_depth > 0 || (network && network->draws_random_numbers);
}

bool ModelSpec::has_slices() const {
  const OwnNetwork* const network = network_of(*this);
  return !network || network->has_slices;
}

void resolve_model(ModelSpec& spec) {
  spec.kind.visit([&](auto& model) { model.resolve(spec.name()); });
}

std::string sizes_text(const ModelSpec& spec) {
  std::string text;
  spec.kind.visit([&]<class Kind>(const Kind& model) {
    for_each_field<Kind>([&]<class T>(const FieldInfo& field, T Kind::*member) {
      if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>> ||
                    std::is_same_v<T, std::optional<std::vector<int64_t>>>)
        if (const std::string value = yaml_text(model.*member); value != "null")
          text += (text.empty() ? "" : ", ") + std::string(field.key) + " " + value;
    });
  });
  return text;
}

void check_model(const ModelSpec& spec, const Positions& positions) {
  spec.kind.visit([&](const auto& model) { model.check(positions); });
}

ModelSpec model_named(std::string_view name) {
  ModelSpec spec{.kind = ModelKind(name)};
  resolve_model(spec);
  return spec;
}

ModelSpec tiny_model(std::string_view name) {
  ModelSpec spec{.kind = ModelKind(name)};
  spec.kind.visit([]<class Kind>(Kind& model) {
    if constexpr (requires { Kind::tiny(); }) model = Kind::tiny();
  });
  resolve_model(spec);
  return spec;
}

ModelLayout structure_of(const ModelSpec& spec, int64_t sequence_length) {
  ModelLayout layout = spec.kind.visit([&](const auto& model) { return layout_of(model, sequence_length); });
  layout.name = spec.name();
  return layout;
}

}  // namespace sdp
