#include "train/nonfinite_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "feed/feed.h"
#include "train/train_step.h"

namespace sdp {
namespace {

/// The first few numbers, and how many follow.
std::string first_of(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 16;
  const std::span first(numbers.data(), std::min(kMost, numbers.size()));
  const std::string more = numbers.size() > kMost ? fmt::format(" and {} more", numbers.size() - kMost) : "";
  return fmt::format("{}{}", fmt::join(first, ", "), more);
}

}  // namespace

NonfiniteRecord nonfinite_record(const Experiment& experiment, const RunSteps& steps, int64_t step,
                                 const NonfiniteStep& found, bool skipped) {
  const Placement& placement = experiment.schedule.placement;
  const int64_t slots_per_process = placement.slots_per_process();
  std::vector<size_t> slots = found.slots;
  if (slots.empty()) {  // only the averaged gradient is not finite: the worker is unknown
    slots.resize(static_cast<size_t>(slots_per_process * placement.processes));
    std::iota(slots.begin(), slots.end(), size_t{0});
  }
  NonfiniteRecord record{
      .step = step + 1, .skipped = skipped, .gradient_ranks = found.gradient_ranks, .batches = {}};
  for (const size_t number : slots) {
    const int64_t rank = static_cast<int64_t>(number) / slots_per_process;
    const Slot slot =
        placement.slots_of(static_cast<int>(rank))[number % static_cast<size_t>(slots_per_process)];
    NonfiniteBatch batch{.rank = rank,
                         .worker = slot.worker,
                         .replica = slot.replica,
                         .loss_is_finite = found.slots.empty(),
                         .samples = {}};
    const TrainingBatches batches{.geometry = batch_geometry(experiment.spec, steps.origin),
                                  .slots = {{slot.worker, slot.replica}},
                                  .first_step = step,
                                  .last_step = step + 1,
                                  .seed = static_cast<uint64_t>(experiment.spec.seed)};
    for (int64_t i = 0; i < batches.count(); ++i)
      for (const TrainingSample& sample : batches.samples(i, steps.dataset_size))
        batch.samples.push_back(sample.index);
    record.batches.push_back(std::move(batch));
  }
  return record;
}

std::string text_of(const NonfiniteRecord& record) {
  constexpr size_t kMost = 4;
  std::string text = record.batches.front().loss_is_finite ? "the gradient" : "the loss";
  text += fmt::format(" of step {} is not finite:", record.step);
  const size_t shown = std::min(kMost, record.batches.size());
  for (size_t i = 0; i < shown; ++i) {
    const NonfiniteBatch& batch = record.batches[i];
    text += fmt::format("{} worker {}, replica {} (rank {}) on samples {}", i > 0 ? ";" : "", batch.worker,
                        batch.replica, batch.rank, first_of(batch.samples));
  }
  if (shown < record.batches.size()) text += fmt::format("; {} more workers", record.batches.size() - shown);
  return text;
}

}  // namespace sdp
