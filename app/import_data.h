#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"

namespace sdp {

/// What the files beside imported weights say of their data, where it differs from the spec's data: the names
/// of the classes (config.json of transformers and timm; not with `new_head`) and the normalization of images
/// (the same, or preprocessor_config.json). `from`: a file of weights, or its folder.
std::vector<std::string> differences_from_data(const ExperimentSpec& spec, const std::filesystem::path& from,
                                               bool new_head);

/// After a refusal: where the names of the tensors come from if they are those of an adapter, of timm or of
/// transformers' ViT, and what to do; else empty.
std::string advice_on_names(const std::filesystem::path& from);

}  // namespace sdp
