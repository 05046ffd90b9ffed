#pragma once

// Starting a run from somebody else's weights.

#include <filesystem>
#include <string>
#include <vector>

#include "io/on_progress.h"
#include "train/checkpointing.h"
#include "train/experiment.h"

namespace sdp {

/// Writes checkpoint 0 of the run folder from a safetensors file with the names of the model's library
/// (torchvision, transformers): values and BatchNorm statistics as in the file, optimizer state zero. It is
/// read and written tensor by tensor. What no shape shows (heads, rotary base, ..) is compared with the
/// config.json beside the file, if there is one. Returns the tensors of the file that the model has no use
/// for. DataError for a tensor that is missing, has another shape (both are named), is not of floating
/// point or not finite, and for a num_batches_tracked that is no count; nothing is written then. Progress is
/// told in bytes.
std::vector<std::string> import_model(const Experiment& experiment, const std::filesystem::path& from,
                                      const RunDescription& description, const std::filesystem::path& run_dir,
                                      const OnProgress& on_progress);

}  // namespace sdp
