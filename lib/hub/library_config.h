#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiment/experiment.h"

namespace sdp {

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
