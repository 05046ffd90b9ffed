#pragma once

// What concerns several keys: checks across keys, settings without effect, values that depend on others.

#include <string>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "spec/position.h"

namespace sdp {

/// Whether the command reads what the spec names, the data folder and the assignment file, so that it has to
/// be there. A finished run has its owner sets in its plan.json.
enum class NamedFiles { kMustExist, kNotNeeded };

/// Throws UsageError at the position of the key (or of the mapping around it, where it has its default) for
/// the first contradiction: a name that is no folder name, coverage against workers, the assignment's file,
/// Nesterov without momentum, milestones that do not increase, data the model cannot read, the data folder.
void check_across_keys(const ExperimentSpec& spec, const Positions& positions, NamedFiles named_files);

/// One message with its position for every key that was set and changes nothing, or costs what nobody
/// expects.
std::vector<std::string> find_warnings(const ExperimentSpec& spec, const Positions& positions);

/// Fills what was left unset and depends on other keys: the model's sizes (model/model_spec.h),
/// eval.batch_size (100, of tokens 4), of tokens eval.max_samples and eval.max_samples_per_subnetwork (as
/// many as 20 and 5 training steps use), and eval.recalibrate_batches (100 under forward masking with C < 1
/// for a model with BatchNorm, else 0).
void resolve(ExperimentSpec& spec);

}  // namespace sdp
