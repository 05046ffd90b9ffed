#pragma once

// config.json beside an exported model: what it is, and what its library reads (transformers'
// from_pretrained).

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/files/manifest.h"
#include "data/sets/token_origin.h"
#include "experiment/experiment.h"
#include "model/library_format.h"

namespace sdp {

/// The keys of the spec's section `model` that the model itself has, which describe the architecture, with
/// their values.
nlohmann::ordered_json model_json(const ModelSpec& model);

/// Null where the model's library has no config.json.
std::unique_ptr<LibraryFormat> library_format_of(const ModelSpec& model);

/// What the library makes the full model from.
nlohmann::ordered_json library_config_of(const Experiment& experiment, const LibraryFormat& format,
                                         const TokenOrigin& tokens);

/// The full model of a checkpoint. Of every model, in "sdp_train": the section `model`, the normalisation of
/// images, step and plan. Of a model whose library has a config.json, its keys too.
nlohmann::ordered_json full_model_config(const Experiment& experiment, const Manifest& manifest,
                                         const TokenOrigin& tokens);

/// One worker's subnetwork: the hidden ranges of every branch it has. `config` has the library's keys where
/// it can express the subnetwork, which takes that all blocks that are left are alike; `layer_names` then
/// maps the blocks' names to consecutive ones.
struct SubnetworkConfig {
  nlohmann::ordered_json config;
  std::map<std::string, std::string> layer_names;  ///< "model.layers.5" -> "model.layers.3"
};
SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest,
                                   const TokenOrigin& tokens, int worker);

}  // namespace sdp
