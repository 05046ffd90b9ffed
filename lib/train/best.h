#pragma once

// The best evaluation of a run whose checkpoint is kept (checkpoint.keep_best).

#include <filesystem>
#include <optional>

#include "experiment/spec/checkpoint_spec.h"
#include "telemetry/eval_record.h"

namespace sdp {

/// Whether `a` is better than `b`: by accuracy the higher, by loss the lower, a loss that is not finite last.
bool is_better(const EvalRecord& a, const EvalRecord& b, KeepBest by);

/// The best of a run's evaluations, the earliest of equals. std::nullopt without evaluations.
/// `with_checkpoint`: only those after whose step a checkpoint exists.
std::optional<EvalRecord> best_evaluation(const std::filesystem::path& run_dir, KeepBest by,
                                          bool with_checkpoint);

}  // namespace sdp
