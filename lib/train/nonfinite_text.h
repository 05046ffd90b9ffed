#pragma once

// Messages about a step whose loss or gradient is not finite: which workers, on which samples.

#include <cstdint>
#include <string>
#include <string_view>

#include "experiment/experiment.h"
#include "plan/run_steps.h"
#include "telemetry/records.h"
#include "train/nonfinite.h"

namespace sdp {

inline constexpr std::string_view kNonfiniteRemedies =
    "Lower optimizer.lr, lengthen the warm-up or set optimizer.clip_norm; look at the samples with `data "
    "check`.";

NonfiniteRecord nonfinite_record(const Experiment& experiment, const RunSteps& steps, int64_t step,
                                 const NonfiniteStep& found, bool skipped);

/// "the loss of step 3 is not finite: worker 1, replica 0 (rank 0) on samples 4, 5".
std::string text_of(const NonfiniteRecord& record);

}  // namespace sdp
