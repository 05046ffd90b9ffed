#pragma once

// Starts a run from weights of another program.

#include <filesystem>
#include <string>
#include <vector>

#include "io/on_progress.h"

namespace sdp {

struct Experiment;
struct RunDescription;

/// Writes checkpoint 0 of the run folder from safetensors files with the tensor names of the model's library
/// (torchvision, transformers); see library_files(). Parameters and BatchNorm statistics come from the files;
/// the optimizer state is zero. Tensors are read and written one at a time. Keeps the files beside the
/// weights for an export (kImportedFolder) if the library reads them. `new_head`: the classifier, or the
/// embedding and head of a language model, is drawn as in a run from scratch, whatever the files have, and
/// the files beside the weights are not kept. Returns LibraryTensors::wrapper(). Throws the DataErrors of
/// library_config_values() and LibraryTensors before anything is written. Progress is reported in bytes.
std::string import_model(const Experiment& experiment, const std::filesystem::path& from, bool new_head,
                         const RunDescription& description, const std::filesystem::path& run_dir,
                         const OnProgress& on_progress);

/// Compares `model` of the spec with the config.json beside the weights, if there is one: the library's, if
/// it has one (model/library_format.h), or one that `export` wrote. `from`: a file of weights, or its folder.
/// Some settings, such as the number of heads and the rotary base, do not show in any tensor's shape. A
/// single DataError lists all differences, the --set options that adapt the spec, and features that this
/// program's models do not have. An absent key of the library's means its default. `new_head`: the number of
/// classes or tokens may differ. Without `must_fit`, returns the differing values, as those of --set.
std::vector<std::string> library_config_values(const Experiment& experiment,
                                               const std::filesystem::path& from, bool new_head,
                                               bool must_fit);

}  // namespace sdp
