// What the trainer tells while it runs: metrics, progress, trace.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/checkpointing.h"
#include "train/device.h"
#include "train/trainer.h"

namespace sdp {

/// What all processes tell each other: losses of all slots in order of worker and replica, whether any
/// process was asked to stop, the largest peak memory and wait for data, and how many images were skipped.
Trainer::Gathered Trainer::gather(const at::Tensor& losses) {
  const double stop = signals_.requested() ? 1 : 0;
  const double memory = static_cast<double>(peak_memory_bytes(comm_.device()));
  const double wait_ms = feed_->wait_ms() - interval_.wait_ms;
  const double skipped = static_cast<double>(interval_.skipped);
  const at::Tensor mine = at::cat({losses, at::tensor({stop, memory, wait_ms, skipped}, losses.options())});
  at::Tensor all = at::empty({comm_.size() * mine.numel()}, mine.options());
  comm_.all_gather(all, mine);
  const at::Tensor host = all.cpu().view({comm_.size(), mine.numel()});
  Gathered gathered;
  for (int process = 0; process < comm_.size(); ++process) {
    const double* values = host[process].data_ptr<double>();
    gathered.losses.insert(gathered.losses.end(), values, values + losses.numel());
    const double* others = values + losses.numel();
    gathered.stop = gathered.stop || others[0] > 0;
    gathered.peak_memory_bytes = std::max(gathered.peak_memory_bytes, static_cast<int64_t>(others[1]));
    gathered.wait_ms = std::max(gathered.wait_ms, others[2]);
    gathered.skipped += static_cast<int64_t>(others[3]);
  }
  return gathered;
}

/// `samples`: of this process's batches, by micro-batch, then by slot.
void Trainer::trace_step(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples) {
  const std::vector<double> all_losses = gather(losses).losses;
  const at::Tensor mine = at::tensor(samples, at::kLong).to(comm_.device());
  at::Tensor all = at::empty({comm_.size() * mine.numel()}, mine.options());
  comm_.all_gather(all, mine);
  if (!trace_) return;
  const BatchGeometry geometry = this->geometry();
  const int64_t slots = static_cast<int64_t>(models_.size());
  // [process, micro-batch, slot, sample] -> [worker and replica, micro-batch and sample]
  const at::Tensor by_slot = all.cpu()
                                 .view({comm_.size(), geometry.accumulate_steps, slots, geometry.batch_size})
                                 .transpose(1, 2)
                                 .reshape({comm_.size() * slots, -1});
  for (int64_t i = 0; i < by_slot.size(0); ++i) {
    const int64_t* first = by_slot[i].data_ptr<int64_t>();
    trace_->append(TraceRecord{.step = step + 1,
                               .worker = i / geometry.replicas,
                               .replica = i % geometry.replicas,
                               .loss = all_losses[static_cast<size_t>(i)],
                               .samples = {first, first + by_slot.size(1)}});
  }
}

bool Trainer::log_interval(int64_t done) {
  const Gathered gathered = gather(interval_.losses);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - interval_.began).count();
  const double steps = static_cast<double>(interval_.steps);
  double loss = 0;
  for (double sum : gathered.losses)
    loss += sum / steps / static_cast<double>(gathered.losses.size());
  if (!std::isfinite(loss)) stop_because_not_finite(done);
  const double step_ms = seconds * 1e3 / steps;
  const int64_t bytes_sent = comm_.traffic().all_to_all_bytes;
  const double samples_per_s = static_cast<double>(interval_.steps * steps_.samples_per_step) / seconds;
  if (metrics_) {
    metrics_->append(TrainRecord{.step = done,
                                 .epoch = static_cast<double>(done) / steps_.steps_per_epoch,
                                 .loss = loss,
                                 .lr = lr_of(done - 1),
                                 .samples_per_s = samples_per_s,
                                 .step_ms = step_ms,
                                 .data_wait_ms = gathered.wait_ms / steps,
                                 .skipped_samples = gathered.skipped,
                                 .peak_memory_bytes = gathered.peak_memory_bytes,
                                 .bytes_sent = (bytes_sent - interval_.bytes_sent) / interval_.steps});
    show_progress(done, loss, samples_per_s, gathered.peak_memory_bytes);
    // The first interval waits for the first batch.
    if (done - first_step_ > interval_.steps) warn_of_slow_data(step_ms, gathered.wait_ms / steps);
  }
  interval_ = {.losses = at::zeros_like(interval_.losses),
               .steps = 0,
               .bytes_sent = bytes_sent,
               .wait_ms = feed_->wait_ms(),
               .skipped = 0,
               .began = std::chrono::steady_clock::now()};
  return gathered.stop;
}

void Trainer::warn_of_slow_data(double step_ms, double wait_ms) {
  constexpr double kMostWaiting = 0.2;
  if (warned_of_slow_data_ || wait_ms < kMostWaiting * step_ms) return;
  warned_of_slow_data_ = true;
  progress_->clear();
  log_.warn(fmt::format(
      "the data is the bottleneck: of a step's {:.1f} ms, {:.1f} ms are waited for batches. Raise "
      "data.loader_threads ({}), or data.prefetch_batches ({}) if only some steps wait.",
      step_ms, wait_ms, experiment_.spec.data.loader_threads, experiment_.spec.data.prefetch_batches));
}

void Trainer::show_progress(int64_t done, double loss, double samples_per_s, int64_t memory_bytes) {
  progress_->update({.step = done,
                     .total_steps = steps_.length.total_steps,
                     .epoch = static_cast<double>(done) / steps_.steps_per_epoch,
                     .total_epochs = steps_.epochs,
                     .loss = loss,
                     .samples_per_s = samples_per_s,
                     .seconds_left = std::nullopt,
                     .memory_bytes = memory_bytes});
}

/// Every process has the same losses and throws. Nothing is saved: the last checkpoint stays the last good
/// one.
void Trainer::stop_because_not_finite(int64_t done) const {
  const std::optional<int64_t> saved = CheckpointStore(folder_.dir).latest_step();
  throw Error(
      ExitCode::kInternal,
      fmt::format("the loss is not finite at step {}. Lower optimizer.lr, lengthen the warm-up or set "
                  "optimizer.clip_norm. The last checkpoint is {}.",
                  done, saved ? fmt::format("of step {}", *saved) : "none"));
}

}  // namespace sdp
