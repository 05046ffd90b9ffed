#pragma once

// config.json beside an exported model: what it is, and for LLaMA what transformers'
// LlamaForCausalLM.from_pretrained reads.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "train/experiment.h"

namespace sdp {

/// The full model of a checkpoint.
nlohmann::ordered_json full_model_config(const Experiment& experiment, const Manifest& manifest);

/// Throws DataError where a config.json of transformers beside `weights` says another LLaMA than the spec:
/// heads, rotary base and the like, which no tensor's shape shows. Without the file nothing is checked.
void check_library_config(const ExperimentSpec& spec, const std::filesystem::path& weights);

/// One worker's subnetwork: the hidden ranges of every branch it has. `config` has transformers' keys where
/// its LLaMA can express the subnetwork, which is where all blocks that are left are alike; `layer_names`
/// then maps the blocks' names to consecutive ones.
struct SubnetworkConfig {
  nlohmann::ordered_json config;
  std::map<std::string, std::string> layer_names;  ///< "model.layers.5" -> "model.layers.3"
};
SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest, int worker);

}  // namespace sdp
