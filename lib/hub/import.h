#pragma once

// Starting a run from somebody else's weights.

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpointing.h"
#include "experiment/experiment.h"
#include "io/on_progress.h"

namespace sdp {

/// Writes checkpoint 0 of the run folder from safetensors files with the names of the model's library
/// (torchvision, transformers), see library_files(): values and BatchNorm statistics as in the files,
/// optimizer state zero. They are read and written tensor by tensor. Returns the tensors that the model has
/// no use for. DataError for what check_library_config() and LibraryTensors refuse; nothing is written then.
/// Progress is told in bytes.
std::vector<std::string> import_model(const Experiment& experiment, const std::filesystem::path& from,
                                      const RunDescription& description, const std::filesystem::path& run_dir,
                                      const OnProgress& on_progress);

}  // namespace sdp
