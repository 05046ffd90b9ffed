#include "train/best.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "checkpoint/files/store.h"
#include "telemetry/metrics.h"
#include "telemetry/run_folder.h"

namespace sdp {

bool is_better(const EvalRecord& a, const EvalRecord& b, KeepBest by) {
  switch (by) {
    case KeepBest::kAccuracy:
      return a.accuracy > b.accuracy;
    case KeepBest::kLoss:
      return a.loss < b.loss || (std::isfinite(a.loss) && !std::isfinite(b.loss));
    case KeepBest::kNone:
      break;
  }
  throw std::logic_error("is_better: neither by accuracy nor by loss");
}

std::optional<EvalRecord> best_evaluation(const std::filesystem::path& run_dir, KeepBest by,
                                          bool with_checkpoint) {
  const std::vector<int64_t> saved = CheckpointStore(run_dir).steps();
  std::optional<EvalRecord> best;
  for (const EvalRecord& record : evaluations(RunFolder{run_dir}.metrics())) {
    if (with_checkpoint && !std::binary_search(saved.begin(), saved.end(), record.step)) continue;
    if (!best || is_better(record, *best, by)) best = record;
  }
  return best;
}

}  // namespace sdp
