#include "hub/library_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hub/model_config.h"
#include "io/file.h"
#include "spec/error.h"
#include "spec/model_defaults.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

/// A key of transformers' LlamaConfig and the one of our section `model`; nullptr where only one value is
/// supported.
struct ConfigKey {
  const char* transformers;
  const char* model;
};
constexpr std::array kLlamaKeys = {ConfigKey{"model_type", nullptr},
                                   ConfigKey{"hidden_size", "width"},
                                   ConfigKey{"num_hidden_layers", "depth"},
                                   ConfigKey{"intermediate_size", "hidden_width"},
                                   ConfigKey{"num_attention_heads", "heads"},
                                   ConfigKey{"num_key_value_heads", "kv_heads"},
                                   ConfigKey{"vocab_size", "vocab_size"},
                                   ConfigKey{"rope_theta", "rope_theta"},
                                   ConfigKey{"rms_norm_eps", "norm_eps"},
                                   ConfigKey{"tie_word_embeddings", "tied_embeddings"},
                                   ConfigKey{"hidden_act", nullptr},
                                   ConfigKey{"attention_bias", nullptr},
                                   ConfigKey{"mlp_bias", nullptr}};

/// What differs, and what makes the spec fit.
class Differences {
 public:
  void compare(const Json& found, const Json& expected, const std::string& file_key, const char* model_key) {
    if (found.is_null() || found == expected) return;
    if (model_key) {
      lines_.push_back(
          fmt::format("{} is {}, model.{} is {}", file_key, found.dump(), model_key, expected.dump()));
      repairs_.push_back(fmt::format("--set model.{}={}", model_key,
                                     found.is_string() ? found.get<std::string>() : found.dump()));
    } else {
      refuse(file_key, found, expected.dump());
    }
  }
  void refuse(const std::string& file_key, const Json& found, const std::string& supported) {
    lines_.push_back(fmt::format("{} is {}, supported is {}", file_key, found.dump(), supported));
    is_supported_ = false;
  }
  void fail_if_any(const std::filesystem::path& path) const {
    if (lines_.empty()) return;
    const std::string advice =
        !is_supported_ ? "This model cannot be imported."
                       : fmt::format("Set `model` of the spec to the file's: {}", fmt::join(repairs_, " "));
    throw DataError(fmt::format("{}: another model than the spec's:\n  {}\n{}", path.string(),
                                fmt::join(lines_, "\n  "), advice));
  }

 private:
  std::vector<std::string> lines_;
  std::vector<std::string> repairs_;
  bool is_supported_ = true;
};

void compare_llama(Differences& differences, const Json& config, const ExperimentSpec& spec) {
  const Json expected = transformers_config(spec, {});
  Json found = config;
  // Newer versions of transformers have both in one object.
  const Json rope = found.value("rope_parameters", found.value("rope_scaling", Json()));
  if (rope.is_object()) {
    if (rope.contains("rope_theta")) found["rope_theta"] = rope["rope_theta"];
    const Json type = rope.value("rope_type", rope.value("type", Json("default")));
    if (type != "default") differences.refuse("the type of rotary embedding", type, "\"default\"");
  }
  const auto number = [&](const char* key) {
    return found.contains(key) && found[key].is_number_integer() ? found[key].get<int64_t>() : 0;
  };
  const int64_t head_dim = number("head_dim");
  const int64_t heads = number("num_attention_heads");
  if (head_dim > 0 && heads > 0 && head_dim * heads != number("hidden_size"))
    differences.refuse("head_dim", found["head_dim"], "hidden_size divided by num_attention_heads");
  for (const auto& [transformers, model] : kLlamaKeys)
    if (found.contains(transformers))
      differences.compare(found[transformers], expected[transformers], transformers, model);
}

void compare_own(Differences& differences, const Json& config, const ExperimentSpec& spec) {
  const Json expected = model_json(spec.model);
  const Json& found = config["sdp_train"]["model"];
  for (const auto& [key, value] : found.items())
    if (expected.contains(key)) differences.compare(value, expected[key], key, key.c_str());
}

}  // namespace

void check_library_config(const ExperimentSpec& spec, const std::filesystem::path& from) {
  std::error_code ignored;
  const std::filesystem::path path =
      (std::filesystem::is_directory(from, ignored) ? from : from.parent_path()) / "config.json";
  if (!std::filesystem::exists(path, ignored)) return;
  const Json config = Json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) throw DataError(fmt::format("{}: is not a JSON object", path.string()));
  Differences differences;
  const bool has_own = config.contains("sdp_train") && config["sdp_train"].is_object() &&
                       config["sdp_train"].contains("model") && config["sdp_train"]["model"].is_object();
  if (is_llama(spec.model.name)) {
    compare_llama(differences, config, spec);
  } else if (has_own && !config["sdp_train"].contains("worker")) {  // a subnetwork has other sizes
    compare_own(differences, config, spec);
  }
  differences.fail_if_any(path);
}

}  // namespace sdp
