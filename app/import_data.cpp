#include "import_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "checkpoint/files/safetensors.h"
#include "hub/library_files.h"
#include "spec/text.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

/// An empty object if there is no such file.
Json beside(const std::filesystem::path& from, const char* name) {
  const std::filesystem::path path = config_beside(from).replace_filename(name);
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? read_json_object(path) : Json::object();
}

/// By label: id2label of transformers, label_names of timm and of `export`.
std::vector<std::string> class_names_of(const Json& config) {
  std::vector<std::string> names;
  const Json none = Json::object();
  const Json& by_label = config.contains("id2label") ? config["id2label"] : none;
  const Json& list = config.contains("label_names") ? config["label_names"] : by_label;
  for (size_t label = 0; label < list.size(); ++label) {
    const std::string key = std::to_string(label);
    if (!list.is_array() && !list.contains(key)) return {};
    const Json& name = list.is_array() ? list[label] : list[key];
    if (!name.is_string()) return {};
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::optional<std::string> difference_of_classes(const std::vector<std::string>& file,
                                                 const std::vector<std::string>& data) {
  if (file.empty() || data.empty()) return std::nullopt;
  constexpr const char* kAdvice =
      "Unless they are the same classes in the same order, import with --new-head";
  if (file.size() != data.size())
    return fmt::format("config.json names {} classes, the data has {}. {}", file.size(), data.size(),
                       kAdvice);
  for (size_t label = 0; label < file.size(); ++label)
    if (file[label] != data[label])
      return fmt::format("class {} is {:?} in config.json and {:?} in the data. {}", label, file[label],
                         data[label], kAdvice);
  return std::nullopt;
}

using Channels = std::vector<double>;

std::optional<Channels> channels_at(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at) || !json[at].is_array()) return std::nullopt;
  Channels values;
  for (const Json& value : json[at]) {
    if (!value.is_number()) return std::nullopt;
    values.push_back(value.get<double>());
  }
  return values;
}

std::optional<std::string> difference_of_pixels(const char* what, const Channels& file,
                                                const Channels& data) {
  constexpr double kRounding = 1e-3;
  bool is_same = file.size() == data.size();
  for (size_t channel = 0; is_same && channel < file.size(); ++channel)
    is_same = std::abs(file[channel] - data[channel]) <= kRounding;
  if (is_same || file.size() != data.size()) return std::nullopt;  // other channels show in a tensor's shape
  const std::string of_file = fmt::format("[{:.4g}]", fmt::join(file, ","));
  return fmt::format(
      "the model was trained on images with the {} {}, the data is normalized with [{:.4g}]. To have "
      "the model's: --set {}",
      what, of_file, fmt::join(data, ","),
      shell_word(fmt::format("data.normalization.{}={}", what, of_file)));
}

}  // namespace

std::vector<std::string> differences_from_data(const ExperimentSpec& spec, const std::filesystem::path& from,
                                               bool new_head) {
  std::vector<std::string> differences;
  const auto add = [&](std::optional<std::string> difference) {
    if (difference) differences.push_back(std::move(*difference));
  };
  const std::optional<Normalization> data = spec.data.pixel_normalization();
  if (!data) return differences;  // tokens
  const Json config = beside(from, "config.json"), preprocessor = beside(from, "preprocessor_config.json");
  if (!new_head) add(difference_of_classes(class_names_of(config), spec.data.class_names()));
  for (const auto& [what, ours, theirs] :
       {std::tuple("mean", &data->mean, "image_mean"), std::tuple("std", &data->stddev, "image_std")})
    for (const auto& found : {channels_at(preprocessor, fmt::format("/{}", theirs).c_str()),
                              channels_at(config, fmt::format("/pretrained_cfg/{}", what).c_str())})
      if (found) {
        add(difference_of_pixels(what, *found, *ours));
        break;
      }
  return differences;
}

std::string advice_on_names(const std::filesystem::path& from) {
  const std::string adapter =
      "\nThese are the tensors of an adapter (PEFT), without the model that it adapts. Save what "
      "merge_and_unload() returns, and import that.";
  const std::string rename = fmt::format(
      "\nThese are names of timm or transformers, expected torchvision's. For a Vision Transformer: python3 "
      "scripts/vit_names.py {} --out torchvision.safetensors",
      shell_word(from.string()));
  const std::initializer_list<std::pair<const char*, std::string>> known = {
      {".lora_", adapter},
      {"base_model.model.", adapter},
      {"blocks.0.attn.qkv.", rename},
      {".attention.attention.query.", rename}};
  for (const std::filesystem::path& path : library_files(from)) {
    const SafetensorsFile file(path);
    for (const TensorView& view : file.entries())
      for (const auto& [part, advice] : known)
        if (view.entry.name.find(part) != std::string::npos) return advice;
  }
  return "";
}

}  // namespace sdp
