#pragma once

#include <vector>

#include "capture/recorder.h"
#include "capture/step_captures.h"

namespace sdp {

/// Records the worker's step on a batch of this size. Segments as in StepCapture. Branches in `left_out` are
/// skipped, as if the worker did not have them.
std::vector<RecordedSegment> record_step(const StepShape& step, const SubnetPlan& plan, int worker,
                                         int64_t batch_size, const std::vector<int>& left_out = {});

}  // namespace sdp
