#pragma once

// The best evaluation of a run whose checkpoint is kept (checkpoint.keep_best).

#include <filesystem>
#include <map>
#include <string>

#include "data/dataset.h"
#include "experiment/experiment_spec.h"
#include "run/eval_record.h"

namespace sdp {

/// The criterion (checkpoint.keep_best; where it is none, loss for tokens and accuracy for images) and a hash
/// of the samples and of the corrections: scores of different measures cannot be compared.
std::string measure_of(const ExperimentSpec& spec, const DataIdentity& test);

/// Whether `a` is better than `b`: by accuracy the higher, by loss the lower, a loss that is not finite last.
bool is_better(const EvalRecord& a, const EvalRecord& b, KeepBest by);

/// The best of a run's evaluations by measure ("": of an older program), the earliest of equals.
/// `with_checkpoint`: only those after whose step a checkpoint exists.
std::map<std::string, EvalRecord> best_evaluations(const std::filesystem::path& run_dir,
                                                   bool with_checkpoint);

}  // namespace sdp
