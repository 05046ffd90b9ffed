#include "capture/full_model.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "capture/record_step.h"

namespace sdp {

double kept_bytes_per_sample(const ModelLayout& layout, const StepShape& step) {
  const SubnetPlan whole = make_plan(layout, SubnetworkSpec{}, 0);
  try {
    return StepCaptures(step, whole).of(0).kept_bytes(1);
  } catch (const c10::Error&) {
    return std::numeric_limits<double>::infinity();
  }
}

std::optional<int64_t> fewest_norm_positions(const ModelLayout& layout, const StepShape& step) {
  const SubnetPlan whole = make_plan(layout, SubnetworkSpec{}, 0);
  std::optional<int64_t> fewest;
  for (const RecordedSegment& segment : record_step(step, whole, 0, /*batch_size=*/1))
    for (const RecordedCall& call : segment.forward.calls) {
      if (call.op.name != "aten::native_batch_norm") continue;
      const std::vector<int64_t>& shape = call.tensor(0).sizes;  // [1, C, S, S]
      fewest = std::min(fewest.value_or(shape[2] * shape[3]), shape[2] * shape[3]);
    }
  return fewest;
}

}  // namespace sdp
