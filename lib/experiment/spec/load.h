#pragma once

// Loads an experiment from YAML files and overrides on the command line.

#include <filesystem>
#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "experiment/spec/validate.h"

namespace sdp {

/// Where the length of the run (train.epochs, train.max_steps) is set.
enum class LengthFrom { kDefault, kFile, kOverride };

struct LoadedSpec {
  ExperimentSpec spec;  ///< checked and resolved (see `resolve`)
  std::vector<std::string>
      warnings;  ///< with their positions; ignore those of a saved spec.yaml, which sets every key
  LengthFrom length_from = LengthFrom::kDefault;
  Positions positions = {};  ///< of the keys that are set
};

/// Reads the files in order, then the overrides. A later file replaces single keys of the earlier ones. A
/// file with the key `base` is read after the file or files that it names, relative to itself. An override is
/// "a.b=v" with v in YAML ("optimizer.lr=0.2", "data.augment=[]", "model={name: mlp, depth: 2}"). The last
/// model.name decides which keys of `model` have an effect, wherever they are set; the other keys of `model`
/// cause warnings.
///
/// Throws UsageError with all errors, one to a line. Each begins with "file:line:column: " ("file: " if the
/// file cannot be read, "--set a.b=v: " for an override) and the key. It says what was found and what was
/// expected, and for an unknown key or name it lists the allowed ones and suggests similar ones. Every file
/// is checked in full, including keys that a later file replaces.
LoadedSpec load_spec(const std::vector<std::filesystem::path>& files,
                     const std::vector<std::string>& overrides,
                     NamedFiles named_files = NamedFiles::kMustExist);

/// Takes a relative data.path as relative to the working directory.
void make_data_path_absolute(ExperimentSpec& spec);

/// Like load_spec, for a run. data.path is made absolute, because the saved spec may be read from another
/// working directory.
LoadedSpec load_run_spec(const std::vector<std::filesystem::path>& files,
                         const std::vector<std::string>& overrides,
                         NamedFiles named_files = NamedFiles::kMustExist);

/// A run's spec that a program wrote in code: checked across keys (the limits of single keys are those of
/// files), resolved, and with an absolute data.path. Throws UsageError with all errors.
ExperimentSpec complete_spec(ExperimentSpec spec);

/// Loads the spec.yaml of a run folder or checkpoint. Throws UsageError if an override is refused, and
/// DataError that names the file if the file itself is refused.
ExperimentSpec load_saved_spec(const std::filesystem::path& file,
                               const std::vector<std::string>& overrides = {});

/// Like load_spec, for one text in memory. `source_name` stands for the file name in messages.
LoadedSpec parse_spec(const std::string& text, const std::string& source_name,
                      const std::vector<std::string>& overrides = {},
                      NamedFiles named_files = NamedFiles::kMustExist);

}  // namespace sdp
