#pragma once

// From a YAML tree into the typed structs.

#include "spec/experiment_spec.h"
#include "spec/position.h"
#include "spec/yaml_tree.h"

namespace sdp {

/// Sets the keys that `root` has and leaves the others as they are, so that reading several trees one after
/// another merges them key by key. Every key set is entered into `positions` (an optional one set to null is
/// taken out). Throws UsageError with position, key, what was found and what was expected: unknown or
/// duplicate key, wrong type, value out of its limits, unknown name.
void read_into(ExperimentSpec& spec, const YamlNode& root, Positions& positions);

/// Throws UsageError naming the first required key that was not set.
void check_required_keys(const Positions& positions);

}  // namespace sdp
