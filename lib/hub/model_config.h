#pragma once

// config.json of an exported model: its description, and the keys that its library reads (transformers'
// from_pretrained).

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/tokens.h"
#include "experiment/experiment.h"
#include "model/library_format.h"
#include "run/manifest.h"

namespace sdp {

/// The model's own keys of the spec's section `model`, which describe the architecture, with their values.
nlohmann::ordered_json model_json(const ModelSpec& model);

/// Null if the model's library has no config.json.
std::unique_ptr<LibraryFormat> library_format_of(const ModelSpec& model);

/// What an export takes from elsewhere than the experiment.
struct ExportOrigin {
  TokenOrigin tokens = {};
  std::vector<std::string> class_names = {};               ///< by label; empty if they are unknown
  nlohmann::ordered_json imported_config = {};             ///< null if there is none
  std::vector<std::filesystem::path> imported_files = {};  ///< in kImportedFolder
};

/// The keys from which the library builds the full model. Of a run that started from an import: with those of
/// the imported config.json that do not describe the model, among them the token ids and the longest
/// sequence.
nlohmann::ordered_json library_config_of(const Experiment& experiment, const LibraryFormat& format,
                                         const ExportOrigin& origin);

/// Config of a checkpoint's full model. For every model, "sdp_train" has the section `model`, the
/// normalization of images, step and plan. If the model's library has a config.json, its keys are included
/// too; a model of images has the keys from which timm makes it, as far as timm has the architecture, and its
/// evaluation transform.
nlohmann::ordered_json full_model_config(const Experiment& experiment, const Manifest& manifest,
                                         const ExportOrigin& origin);

/// Config of one worker's subnetwork: the hidden ranges of every branch it has. `config` includes the
/// library's keys if the library can express the subnetwork, which requires all remaining blocks to be alike.
/// `layer_names` then maps the blocks' names to consecutive ones.
struct SubnetworkConfig {
  nlohmann::ordered_json config;
  std::map<std::string, std::string> layer_names;  ///< "model.layers.5" -> "model.layers.3"
};
SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest,
                                   const ExportOrigin& origin, int worker);

}  // namespace sdp
