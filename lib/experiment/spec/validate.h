#pragma once

// Checks across several keys, warnings about settings without effect, and defaults that depend on other keys.

#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "spec/position.h"
#include "spec/usage_errors.h"

namespace sdp {

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

}  // namespace sdp
