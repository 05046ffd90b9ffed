#pragma once

// config.json beside an exported model: what it is, and for LLaMA what transformers'
// LlamaForCausalLM.from_pretrained reads.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/files/manifest.h"
#include "data/sets/token_origin.h"
#include "experiment/experiment.h"

namespace sdp {

/// The keys of the spec's section `model` that describe the architecture, with their values.
nlohmann::ordered_json model_json(const ModelSpec& model);

/// What transformers' LlamaConfig is made from, for the LLaMA of the spec.
nlohmann::ordered_json transformers_config(const ExperimentSpec& spec, const TokenOrigin& tokens);

/// The full model of a checkpoint. Of every model, in "sdp_train": the section `model`, the normalisation of
/// images, step and plan. Of a LLaMA, transformers' keys too.
nlohmann::ordered_json full_model_config(const Experiment& experiment, const Manifest& manifest,
                                         const TokenOrigin& tokens);

/// One worker's subnetwork: the hidden ranges of every branch it has. `config` has transformers' keys where
/// its LLaMA can express the subnetwork, which is where all blocks that are left are alike; `layer_names`
/// then maps the blocks' names to consecutive ones.
struct SubnetworkConfig {
  nlohmann::ordered_json config;
  std::map<std::string, std::string> layer_names;  ///< "model.layers.5" -> "model.layers.3"
};
SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest,
                                   const TokenOrigin& tokens, int worker);

}  // namespace sdp
