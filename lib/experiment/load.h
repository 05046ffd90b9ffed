#pragma once

// Loads an experiment from YAML files and overrides on the command line.

#include <filesystem>
#include <string>
#include <vector>

#include "experiment/experiment_spec.h"
#include "spec/position.h"

namespace sdp {

// Checks across several keys, warnings about settings without effect, and defaults that depend on other keys.

/// Whether the data folder and the assignment file that the spec names must exist, because the command reads
/// them. A finished run does not need the assignment file: its owner sets are in its plan.json.
enum class NamedFiles { kMustExist, kNotNeeded };

/// Adds an error for each contradiction, at the position of the key (or of the enclosing mapping if
/// the key has its default), unless a key that takes part in it already has an error: a name that is not a
/// folder name, a coverage that the number of workers does not allow, a missing or superfluous assignment
/// file, Nesterov momentum without momentum, milestones that do not increase, data that the model cannot
/// read, sizes of the model that contradict each other, a missing data folder.
void check_across_keys(const ExperimentSpec& spec, const Positions& positions, NamedFiles named_files,
                       UsageErrors& errors);

/// One message, with its position, for every key that was set but has no effect or has an unexpected cost.
std::vector<std::string> find_warnings(const ExperimentSpec& spec, const Positions& positions);

/// Sets the unset keys whose defaults depend on other keys: the model's sizes (model/model_spec.h),
/// eval.batch_size (100 images or 4 token sequences), for token data eval.max_samples and
/// eval.max_samples_per_subnetwork (the samples of 20 and of 5 training steps), and eval.recalibrate_batches
/// (100 for a model with BatchNorm under forward masking with C < 1, otherwise 0).
void resolve(ExperimentSpec& spec);

/// Unsets keys that have such a default, and that a resumed run may change by changing others.
void unset_defaults(ExperimentSpec& spec);

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
