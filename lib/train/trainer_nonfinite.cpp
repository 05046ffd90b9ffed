// What the trainer does with steps whose loss or gradient is not finite.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "train/trainer.h"

namespace sdp {
namespace {

constexpr std::string_view kRemedies =
    "Lower optimizer.lr, lengthen the warm-up or set optimizer.clip_norm; look at the samples with `data "
    "check`.";

/// The first numbers, and how many more there are.
std::string first_of(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 16;
  const std::span first(numbers.data(), std::min(kMost, numbers.size()));
  const std::string more = numbers.size() > kMost ? fmt::format(" and {} more", numbers.size() - kMost) : "";
  return fmt::format("{}{}", fmt::join(first, ", "), more);
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

}  // namespace

/// `slots`: number over all processes, in order of rank.
NonfiniteRecord Trainer::nonfinite_record(int64_t step, const NonfiniteStep& found, bool skipped) const {
  const int64_t slots_per_process = static_cast<int64_t>(engine_.store().slots().size());
  const Placement& placement = experiment_.schedule.placement;
  std::vector<size_t> slots = found.slots;
  if (slots.empty()) {  // only the averaged gradient: whose it was is not known
    slots.resize(static_cast<size_t>(slots_per_process * comm_.size()));
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
    const TrainingBatches batches{.geometry = batch_geometry(experiment_.spec),
                                  .slots = {{slot.worker, slot.replica}},
                                  .first_step = step,
                                  .last_step = step + 1,
                                  .seed = static_cast<uint64_t>(experiment_.spec.seed)};
    for (int64_t i = 0; i < batches.count(); ++i)
      for (const TrainingSample& sample : batches.samples(i, data_.train->size()))
        batch.samples.push_back(sample.index);
    record.batches.push_back(std::move(batch));
  }
  return record;
}

void Trainer::skip_step(int64_t step, const NonfiniteStep& found) {
  ++interval_.skipped_steps;
  ++skipped_steps_;
  ++consecutive_skips_;
  const NonfiniteRecord record = nonfinite_record(step, found, /*skipped=*/true);
  if (metrics_) {
    metrics_->append(record);
    warn(text_of(record) + "; the step is skipped");
  }
  const int64_t most = experiment_.spec.train.max_consecutive_skips;
  if (consecutive_skips_ > most)
    throw Error(
        ExitCode::kInternal,
        fmt::format("{}, the {}th step in a row; train.max_consecutive_skips is {}. {} {}", text_of(record),
                    consecutive_skips_, most, kRemedies, text_of_last_checkpoint(folder_.dir)));
}

/// Every process has the same losses and throws. Nothing is saved: the last checkpoint stays the last good
/// one.
void Trainer::stop_because_not_finite(int64_t step, const NonfiniteStep& found) {
  const NonfiniteRecord record = nonfinite_record(step, found, /*skipped=*/false);
  if (metrics_) metrics_->append(record);
  throw Error(ExitCode::kInternal,
              fmt::format("{}. {} train.on_nonfinite: skip goes on without such steps. {}", text_of(record),
                          kRemedies, text_of_last_checkpoint(folder_.dir)));
}

}  // namespace sdp
