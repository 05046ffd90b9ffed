#pragma once

#include <filesystem>

#include "experiment/experiment.h"

namespace sdp {

/// Compares `model` of the spec with the config.json beside the weights, if there is one: the library's,
/// where it reads one (model/library_format.h), or one that `export` wrote. `from`: a file of weights, or
/// their folder. Some of it, as heads and the rotary base, no tensor's shape shows. One DataError tells all
/// differences, with the --set that make the spec fit, and what this program's models do not have.
void check_library_config(const Experiment& experiment, const std::filesystem::path& from);

}  // namespace sdp
