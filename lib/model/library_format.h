#pragma once

// How a model's library describes the model in config.json and names its tensors. For models whose library
// reads a config.json (Hugging Face transformers).

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_row.h"

namespace sdp {

/// A key of the library's configuration.
struct ConfigKey {
  const char* library;
  const char* model;              ///< of our section `model`; nullptr if only one value is supported
  nlohmann::ordered_json absent;  ///< what the library takes if the key is absent
};

/// The blocks of a model, or of a subnetwork whose blocks are all alike.
struct BlockShape {
  int64_t blocks = 0;
  std::vector<int64_t> hidden_widths = {};  ///< of each branch of a block, in the layout's order
};

/// Called for a value of a configuration that this program's model does not support, with the key, the value
/// found and the supported value.
using RefuseConfig = std::function<void(const std::string& key, const nlohmann::ordered_json& found,
                                        const std::string& supported)>;

class LibraryFormat {
 public:
  virtual ~LibraryFormat() = default;

  /// The name of the architecture in the library, `model_type` of config.json.
  virtual std::string_view model_type() const = 0;

  /// The configuration from which the library makes the model, without the tokens and the type that all have.
  /// Empty if the library cannot express the shape.
  virtual nlohmann::ordered_json config(const BlockShape& shape, int64_t sequence_length) const = 0;

  /// The keys of `config` that are compared when a model is imported.
  virtual std::vector<ConfigKey> compared_keys() const = 0;

  /// Brings a configuration that the library saved into the form of `config`, where the library accepts
  /// several forms. Absent keys stay absent.
  virtual nlohmann::ordered_json normalized(nlohmann::ordered_json found, const RefuseConfig&) const = 0;

  /// For a normalized configuration that has all `compared_keys`: replaces null where the value then follows
  /// from others.
  virtual void derive(nlohmann::ordered_json& found) const = 0;

  /// Name of a block, which is the prefix of its tensors' names: "model.layers.3".
  virtual std::string block_name(int64_t block) const = 0;

  /// Prefix that tensor names have in files of the whole model but not in files of the model without its
  /// head, for example "transformer." for GPT-2. Empty: no prefix.
  virtual std::string_view optional_prefix() const { return ""; }

  /// Whether files may contain, in addition to the parameters, a tensor of that name that the model does not
  /// need, for example a mask.
  virtual bool is_redundant(std::string_view) const { return false; }

  /// The parameter that a tensor of that name must equal, if files may contain the tensor in addition to the
  /// parameters: for a tied head, the embedding. Empty: files may not contain the tensor.
  virtual std::string_view repeated_by(std::string_view) const { return ""; }
};

/// For models whose library reads no config.json.
template <class Spec>
std::unique_ptr<LibraryFormat> library_format(const Spec&) {
  return nullptr;
}

/// For models whose library saves no tensors besides parameters and statistics.
template <class Spec>
LibraryConstants library_constants(const Spec&, const ModelLayout&) {
  return {};
}

}  // namespace sdp
