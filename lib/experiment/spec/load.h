#pragma once

// The experiment of a run from YAML files and the command line's overrides.

#include <filesystem>
#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "experiment/spec/validate.h"

namespace sdp {

struct LoadedSpec {
  ExperimentSpec spec;  ///< checked and resolved (see `resolve`)
  std::vector<std::string>
      warnings;  ///< with their positions; a saved spec.yaml sets every key, so its own are idle
};

/// Reads the files in order, a later one replacing single keys of those before it, then the overrides. A file
/// with the key `base` is read after the file or files that it names, relative to itself. An override is
/// "a.b=v" with v in YAML ("optimizer.lr=0.2", "data.augment=[]", "model={name: mlp, depth: 2}"). The last
/// model.name decides which keys of `model` have an effect, wherever they are set; the others are warned of.
///
/// Throws UsageError, its message beginning with "file:line:column: " ("file: " where it can't be read,
/// "--set a.b=v: " for an override) and the key: what was found, what was expected, and for an unknown key or
/// name the allowed ones and the nearest. Every file is checked in full, also keys that a later one replaces.
LoadedSpec load_spec(const std::vector<std::filesystem::path>& files,
                     const std::vector<std::string>& overrides,
                     NamedFiles named_files = NamedFiles::kMustExist);

/// The same for a run, whose saved spec is read from other folders too: data.path is made absolute.
LoadedSpec load_run_spec(const std::vector<std::filesystem::path>& files,
                         const std::vector<std::string>& overrides,
                         NamedFiles named_files = NamedFiles::kMustExist);

/// The spec.yaml of a run folder or checkpoint. An override that is refused is a UsageError; a file that is
/// refused was not left so by this program: DataError with its name.
ExperimentSpec load_saved_spec(const std::filesystem::path& file,
                               const std::vector<std::string>& overrides = {});

/// load_spec of one text in memory; `source_name` stands for its file.
LoadedSpec parse_spec(const std::string& text, const std::string& source_name,
                      const std::vector<std::string>& overrides = {},
                      NamedFiles named_files = NamedFiles::kMustExist);

}  // namespace sdp
