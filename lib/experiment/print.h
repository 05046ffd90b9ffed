#pragma once

// The experiment as text: for run folders, for `sdp-train spec`, and for editors.

#include <cstdint>
#include <string>

#include "experiment/experiment_spec.h"
#include "spec/describe.h"

namespace sdp {

/// Every key of the spec with its value, as YAML. Loading it gives an equal spec, with numbers equal bit for
/// bit. The value of an unset key is null.
std::string to_yaml(const ExperimentSpec& spec);

/// XXH3-128 of to_yaml in 32 hexadecimal digits. Equal specs have equal hashes on every machine.
std::string spec_hash(const ExperimentSpec& spec);

/// A table of every key, at most 110 columns wide: type, default, accepted values and unit, and a description
/// below. `chosen` selects, for a section that comes in kinds, the kind whose keys are listed. Throws
/// UsageError if no kind has the name.
std::string describe_fields(const ChosenNames& chosen = {});

/// JSON Schema (draft 2020-12) of the spec file.
std::string json_schema();

/// Version of what docs/runs.md lists as the contract with other programs: the files of a run folder, and
/// what `describe` and `check` print. Keys may be added without a new version.
inline constexpr int64_t kRunFormat = 1;

}  // namespace sdp
