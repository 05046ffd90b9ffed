#pragma once

// config.json beside an exported model: what it is, and for LLaMA what transformers'
// LlamaForCausalLM.from_pretrained reads.

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "train/experiment.h"

namespace sdp {

/// The full model of a checkpoint.
nlohmann::ordered_json full_model_config(const Experiment& experiment, const Manifest& manifest);

/// One worker's subnetwork: the hidden ranges of every branch it has. `config` has transformers' keys where
/// its LLaMA can express the subnetwork, which is where all blocks that are left are alike; `layer_names`
/// then maps the blocks' names to consecutive ones.
struct SubnetworkConfig {
  nlohmann::ordered_json config;
  std::map<std::string, std::string> layer_names;  ///< "model.layers.5" -> "model.layers.3"
};
SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest, int worker);

}  // namespace sdp
