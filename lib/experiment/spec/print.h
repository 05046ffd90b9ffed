#pragma once

// The experiment as text: for a run folder, for the reader of `sdp-train spec`, for editors.

#include <string>

#include "experiment/spec/experiment_spec.h"
#include "spec/describe.h"

namespace sdp {

/// Every key that the spec has with its value; loading it gives an equal spec, numbers bit for bit. Unset
/// ones are null.
std::string to_yaml(const ExperimentSpec& spec);

/// XXH3-128 of to_yaml, 32 hexadecimal digits: equal for equal specs, on every machine.
std::string spec_hash(const ExperimentSpec& spec);

/// A table of every key: type, default, accepted values and unit, and below it what it means. At most 110
/// columns. `chosen`: of a section that comes in kinds, the one whose keys are wanted. Throws UsageError for
/// a name that there is not.
std::string describe_fields(const ChosenNames& chosen = {});

/// JSON Schema (draft 2020-12) of the spec file.
std::string json_schema();

}  // namespace sdp
