#include "eval/best.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "run/checkpoint_store.h"
#include "run/metrics.h"
#include "run/run_folder.h"
#include "spec/hash.h"

namespace sdp {

std::string measure_of(const ExperimentSpec& spec, const DataIdentity& test) {
  const bool is_of_tokens = spec.data.is_of_tokens();
  KeepBest by = spec.checkpoint.keep_best;
  if (by == KeepBest::kNone) by = is_of_tokens ? KeepBest::kLoss : KeepBest::kAccuracy;
  const std::string text =
      fmt::format("{} {} {} {} {} {}", test.samples, test.hash,
                  std::min(spec.eval.max_samples.value_or(test.samples), test.samples),
                  is_of_tokens ? spec.data.sequence_length() : spec.data.eval_resize_of(0),
                  *spec.eval.recalibrate_batches, name_of(spec.eval.branch_scale));
  return fmt::format("{} {}", name_of(by), xxh3_128(text));
}

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

std::map<std::string, EvalRecord> best_evaluations(const std::filesystem::path& run_dir,
                                                   bool with_checkpoint) {
  const std::vector<int64_t> saved = CheckpointStore(run_dir).steps();
  std::map<std::string, EvalRecord> best;
  for (const EvalRecord& record : evaluations(RunFolder{run_dir}.metrics())) {
    if (with_checkpoint && !std::binary_search(saved.begin(), saved.end(), record.step)) continue;
    const std::string measure = record.measure.value_or("");
    const bool by_loss = measure.empty() ? record.is_of_tokens() : measure.starts_with("loss");
    const auto [found, is_first] = best.try_emplace(measure, record);
    if (!is_first && is_better(record, found->second, by_loss ? KeepBest::kLoss : KeepBest::kAccuracy))
      found->second = record;
  }
  return best;
}

}  // namespace sdp
