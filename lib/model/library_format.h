#pragma once

// How a model's library describes it in config.json, and names its tensors: for models whose library reads
// such a file (Hugging Face transformers).

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sdp {

/// A key of the library's configuration and the one of our section `model`; nullptr where only one value is
/// supported.
struct ConfigKey {
  const char* library;
  const char* model;
};

/// The blocks of a model, or of a subnetwork whose blocks are all alike.
struct BlockShape {
  int64_t blocks = 0;
  std::vector<int64_t> hidden_widths = {};  ///< of the branches of a block, in the layout's order
};

/// What a configuration says besides the model's sizes.
struct ConfigContext {
  int64_t sequence_length = 0;
  std::optional<int64_t> end_of_text = {};  ///< token that begins and ends the documents, where it is known
  bool is_fp64 = false;
};

/// What a found configuration has that this program's model cannot be: key, value, the supported one.
using RefuseConfig = std::function<void(const std::string& key, const nlohmann::ordered_json& found,
                                        const std::string& supported)>;

class LibraryFormat {
 public:
  virtual ~LibraryFormat() = default;

  /// What the library makes the model from. Empty where it cannot say the shape.
  virtual nlohmann::ordered_json config(const BlockShape& shape, const ConfigContext& context) const = 0;

  /// The keys of `config` that an imported model is compared by.
  virtual std::vector<ConfigKey> compared_keys() const = 0;

  /// A configuration as the library saved it, with what it may say in several ways said as `config` does.
  virtual nlohmann::ordered_json normalized(nlohmann::ordered_json found, const RefuseConfig&) const {
    return found;
  }

  /// Name of a block, with which those of its tensors begin: "model.layers.3".
  virtual std::string block_name(int64_t block) const = 0;

  /// What tensors' names begin with in files of the whole model, and not in those of the model without its
  /// head: "transformer." of GPT-2. Empty: nothing.
  virtual std::string_view optional_prefix() const { return ""; }

  /// Whether files may have a tensor of that name beside the parameters that holds nothing of the model, such
  /// as a mask.
  virtual bool is_redundant(std::string_view) const { return false; }

  /// The parameter that a tensor of that name, which files may have beside the parameters, must repeat: the
  /// embedding for a tied head. Empty: none.
  virtual std::string_view repeated_by(std::string_view) const { return ""; }
};

}  // namespace sdp
