// What the trainer tells while it runs: metrics, progress, trace.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "checkpoint/checkpointing.h"
#include "device/device.h"
#include "device/version.h"
#include "memory/allocations.h"
#include "train/run_text.h"
#include "train/trainer.h"

namespace sdp {

void Trainer::begin_interval() {
  interval_ = {.losses = fp64_zeros(engine_.store().slots().size()),
               .first_nonfinite = fp64_zeros(engine_.store().slots().size()).fill_(-1),
               .correct = at::zeros({}, at::TensorOptions(at::kLong).device(comm_.device())),
               .counted = 0,
               .steps = 0,
               .skipped_steps = 0,
               .skipped = 0,
               .began = std::chrono::steady_clock::now(),
               .data_wait_ms = feed_ ? feed_->wait_ms() : 0,
               .forward_ms = train_step_->clock().total_ms(StepPart::kForward),
               .backward_ms = train_step_->clock().total_ms(StepPart::kBackward),
               .optimizer_ms = train_step_->clock().total_ms(StepPart::kOptimizer),
               .reduce = engine_.reduce_totals(),
               .publish = engine_.gather_totals()};
  reset_peak();
  reset_peak_memory(comm_.device());
}

ProcessReport Trainer::report() {
  synchronize(comm_.device());  // what was queued is done in this interval
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - interval_.began).count();
  const ExchangeTotals reduce = engine_.reduce_totals() - interval_.reduce;
  const ExchangeTotals publish = engine_.gather_totals() - interval_.publish;
  const double data_wait_ms = feed_->wait_ms() - interval_.data_wait_ms;
  const auto steps = static_cast<double>(interval_.steps);
  const auto bytes_a_step = [&](int64_t bytes) {
    return static_cast<int64_t>(static_cast<double>(bytes) / steps);
  };
  StepClock& clock = train_step_->clock();
  const MemoryRecord memory = {allocated_at_peak()};
  return {.save_is_due = save_timer_.is_due(SaveTimer::Clock::now()) ? 1 : 0,
          .in_flight_ms = reduce.in_flight_ms + publish.in_flight_ms,
          .waited_ms = reduce.waited_ms + publish.waited_ms,
          .correct = interval_.correct.item<int64_t>(),
          .counted = interval_.counted,
          .of_process = {.data_wait_ms = data_wait_ms / steps,
                         .skipped_samples = interval_.skipped,
                         .peak_process_memory_bytes = peak_process_memory_bytes(comm_.device()),
                         .peak_tensor_memory_bytes = memory.total()},
          .exchange = {.reduce_bytes = bytes_a_step(reduce.bytes_sent),
                       .publish_bytes = bytes_a_step(publish.bytes_sent),
                       .reduce_ms = reduce.in_flight_ms / steps,
                       .publish_ms = publish.in_flight_ms / steps,
                       .reduce_wait_ms = reduce.waited_ms / steps,
                       .publish_wait_ms = publish.waited_ms / steps,
                       .busy_ms = (ms - data_wait_ms - reduce.waited_ms - publish.waited_ms) / steps},
          .times = {.forward_ms = (clock.total_ms(StepPart::kForward) - interval_.forward_ms) / steps,
                    .backward_ms = (clock.total_ms(StepPart::kBackward) - interval_.backward_ms) / steps,
                    .optimizer_ms = (clock.total_ms(StepPart::kOptimizer) - interval_.optimizer_ms) / steps},
          .memory = memory};
}

/// `samples`: of this process's batches, by micro-batch, then by slot.
void Trainer::trace_step(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples) {
  const std::vector<double> all_losses = gather(comm_, {}, losses).losses;
  const at::Tensor mine = at::tensor(samples, at::kLong).to(comm_.device());
  at::Tensor all = at::empty({comm_.size() * mine.numel()}, mine.options());
  comm_.all_gather(all, mine);
  if (!trace_) return;
  const BatchGeometry geometry = batch_geometry(experiment_.spec);
  const int64_t slots = static_cast<int64_t>(engine_.store().slots().size());
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

void Trainer::check_lock() const {
  if (run_.lock) run_.lock->check();
}

/// Of rank 0, which has the lock.
StartRecord Trainer::start_record() const {
  const RunOwner& owner = run_.lock->owner();
  StartRecord record{.step = first_step_,
                     .checkpoint = checkpoint_,
                     .data_s = data_.open_s,
                     .time = owner.since,
                     .version = kProgramVersion,
                     .job = owner.job,
                     .job_restarts = owner.job_restarts};
  for (const ProcessPlace& process : run_.processes) {
    record.hosts.push_back(process.host);
    record.threads.push_back(process.threads);
  }
  return record;
}

/// Of the interval's steps that were applied; NaN where none was. `gathered`: of each process [2, local
/// slots], sums of losses and first steps that were not finite. Throws where there is one.
double Trainer::mean_loss(const std::vector<double>& gathered) {
  const size_t slots = engine_.store().slots().size();
  double sum = 0;
  NonfiniteStep found;
  double first_step = -1;
  for (size_t number = 0; number < gathered.size() / 2; ++number) {
    const double* const of_process = &gathered[number / slots * 2 * slots];
    sum += of_process[number % slots];
    const double step = of_process[slots + number % slots];
    if (step < 0 || (first_step >= 0 && step > first_step)) continue;
    if (step != first_step) found.slots.clear();
    first_step = step;
    found.slots.push_back(number);
  }
  if (first_step >= 0) stop_because_not_finite(static_cast<int64_t>(first_step), found);
  const auto applied = static_cast<double>(interval_.steps - interval_.skipped_steps);
  return applied > 0 ? sum / applied / (static_cast<double>(gathered.size()) / 2)
                     : std::numeric_limits<double>::quiet_NaN();
}

bool Trainer::log_interval(int64_t done) {
  check_lock();
  // What was sent in the interval's steps is counted with it.
  engine_.await_all_values();
  const GatheredReports gathered =
      gather(comm_, report(), at::cat({interval_.losses, interval_.first_nonfinite}));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - interval_.began).count();
  const double steps = static_cast<double>(interval_.steps);
  const double loss = mean_loss(gathered.losses);
  if (metrics_) {
    const double samples_per_s = static_cast<double>(interval_.steps * steps_.samples_per_step) / seconds;
    TrainRecord record{.step = done,
                       .epoch = static_cast<double>(done) / steps_.steps_per_epoch,
                       .loss = loss,
                       .lr = lr_of(done - 1),
                       .samples_per_s = samples_per_s,
                       .flops_per_s = flops_per_s(samples_per_s),
                       .step_ms = seconds * 1e3 / steps};
    if (peak_flops_per_s_) record.utilization = record.flops_per_s / (*peak_flops_per_s_ * comm_.size());
    add_reports(record, gathered.processes);
    metrics_->append(record);
    show_progress(record);
    // The first interval waits for the first batch.
    if (done - first_step_ > interval_.steps)
      warn_of_slow_data(record.step_ms, record.processes.data_wait_ms);
  }
  begin_interval();
  return gathered.processes.front().save_is_due != 0;
}

/// Training FLOPs of the plan, without those that are computed again (train.checkpoint_activations): each
/// worker has as many samples of a step.
double Trainer::flops_per_s(double samples_per_s) const {
  const SubnetPlan& plan = experiment_.plan;
  double flops = 0;
  for (int worker = 0; worker < plan.workers; ++worker)
    flops += plan.worker_flops(worker);
  return samples_per_s * flops / plan.workers;
}

void Trainer::warn_of_slow_data(double step_ms, double wait_ms) {
  const std::optional<std::string> warning = slow_data_warning(step_ms, wait_ms, experiment_.spec.data);
  if (warned_of_slow_data_ || !warning) return;
  warned_of_slow_data_ = true;
  warn(*warning);
}

void Trainer::show_progress(const TrainRecord& record) {
  progress_.update({.step = record.step,
                    .total_steps = steps_.length.total_steps,
                    .epoch = record.epoch,
                    .total_epochs = steps_.epochs,
                    .loss = record.loss,
                    .samples_per_s = record.samples_per_s,
                    .seconds_left = std::nullopt,
                    .process_memory_bytes = record.processes.peak_process_memory_bytes,
                    .tensor_memory_bytes = record.processes.peak_tensor_memory_bytes});
}

void Trainer::tell(const std::string& message) {
  line_.clear();
  log_.info(message);
}

void Trainer::warn(const std::string& message) {
  line_.clear();
  log_.warn(message);
}

/// Tells that the run is at its end. What an earlier part of the run has told stays.
void Trainer::summarize() const {
  if (comm_.rank() > 0 || std::filesystem::exists(folder_.summary())) return;
  write_summary(folder_.summary(), {.step = std::max(first_step_, steps_.length.total_steps),
                                    .total_steps = steps_.length.total_steps,
                                    .samples_per_step = steps_.samples_per_step,
                                    .epochs = steps_.epochs,
                                    .processes = comm_.size(),
                                    .threads_per_process = threads_,
                                    .device = device_name(comm_.device()),
                                    .version = kProgramVersion,
                                    .skipped_steps = skipped_steps_,
                                    .times = times_of_run(folder_.metrics())});
}

}  // namespace sdp
