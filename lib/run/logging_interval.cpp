#include "run/logging_interval.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/device.h"
#include "process/allocations.h"

namespace sdp {
namespace {

using Words = std::array<int64_t, sizeof(ProcessReport) / sizeof(int64_t)>;

TimeRecord totals_of(StepClock& clock) {
  return {.forward_ms = clock.total_ms(StepPart::kForward),
          .backward_ms = clock.total_ms(StepPart::kBackward),
          .optimizer_ms = clock.total_ms(StepPart::kOptimizer)};
}

/// Sets the fields of the record that combine all processes.
void add_reports(TrainRecord& record, const std::vector<ProcessReport>& processes) {
  double in_flight_ms = 0;
  double waited_ms = 0;
  int64_t correct = 0;
  int64_t counted = 0;
  for (const ProcessReport& process : processes) {
    record.processes.add(process.of_process);
    in_flight_ms += process.exchange.reduce_ms + process.exchange.gather_ms;
    waited_ms += process.exchange.reduce_wait_ms + process.exchange.gather_wait_ms;
    record.exchange.ranks.push_back(process.exchange);
    record.times.ranks.push_back(process.times);
    record.memory.ranks.push_back(process.memory);
    correct += process.correct;
    counted += process.counted;
  }
  if (counted > 0) record.accuracy = static_cast<double>(correct) / static_cast<double>(counted);
  record.overlap = in_flight_ms > 0 ? std::max(0.0, 1 - waited_ms / in_flight_ms)
                                    : std::numeric_limits<double>::quiet_NaN();
  const auto slowest = std::max_element(
      processes.begin(), processes.end(),
      [](const ProcessReport& a, const ProcessReport& b) { return a.exchange.busy_ms < b.exchange.busy_ms; });
  record.slowest_rank = slowest - processes.begin();
  const ExchangeRecord& of_rank_0 = processes.front().exchange;
  record.bytes_sent = of_rank_0.reduce_bytes + of_rank_0.gather_bytes;
}

/// Of the last exchange.
void add_distances(TrainRecord& record, const std::vector<ProcessReport>& processes, int workers) {
  std::array<double, 3> squares = {};
  for (const ProcessReport& process : processes)
    for (size_t i = 0; i < squares.size(); ++i)
      squares[i] += process.exchange_squares[i];
  record.anchor_distance = std::sqrt(squares[0] / workers);
  record.mean_change_norm = std::sqrt(squares[1]);
  record.outer_update_norm = std::sqrt(squares[2]);
}

}  // namespace

GatheredReports gather(Communicator& comm, const ProcessReport& mine, const at::Tensor& losses) {
  const auto words = std::bit_cast<Words>(mine);
  // As integers, whose bits no copy changes.
  const at::Tensor own =
      at::cat({losses.view(at::kLong), at::tensor(words, losses.options().dtype(at::kLong))});
  const at::Tensor all = at::empty({comm.size() * own.numel()}, own.options());
  comm.all_gather(all, own);
  const at::Tensor host = comm.to_host(all).view({comm.size(), own.numel()});
  GatheredReports gathered;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const double* const first = host[rank].view(at::kDouble).const_data_ptr<double>();
    gathered.losses.insert(gathered.losses.end(), first, first + losses.numel());
    Words of_rank;
    std::copy_n(host[rank].const_data_ptr<int64_t>() + losses.numel(), of_rank.size(), of_rank.begin());
    gathered.processes.push_back(std::bit_cast<ProcessReport>(of_rank));
  }
  return gathered;
}

LoggingInterval::LoggingInterval(const Experiment& experiment, const RunSteps& steps, const Engines& engines,
                                 TrainStep& train_step, const DeviceLoader* loader)
    : spec_(experiment.spec),
      run_steps_(steps),
      flops_per_sample_(mean_worker_flops(experiment.plan)),
      engines_(engines),
      workers_(experiment.plan.workers),
      skips_alone_(engines.outer() && spec_.train.on_nonfinite == OnNonfinite::kSkip),
      train_step_(train_step),
      loader_(loader),
      device_(engines.device()),
      slots_(static_cast<int64_t>(engines.slots().size())) {
  begin();
}

void LoggingInterval::begin() {
  const at::TensorOptions fp64 = at::TensorOptions(at::kDouble).device(device_);
  loss_sums_ = at::zeros({slots_}, fp64);
  applied_ = at::zeros({slots_}, fp64);
  first_nonfinite_ = at::full({slots_}, -1, fp64);
  correct_ = at::zeros({}, at::TensorOptions(at::kLong).device(device_));
  gradient_norm_.reset();
  counted_ = steps_ = skipped_steps_ = skipped_samples_ = skipped_local_steps_ = 0;
  began_ = std::chrono::steady_clock::now();
  data_wait_ms_ = loader_ ? loader_->wait_ms() : 0;
  times_ = totals_of(train_step_.clock());
  reduce_ = engines_.reduce_totals();
  gather_ = engines_.gather_totals();
  peak_ = {};
  reset_peak();
  reset_peak_memory(device_);
}

void LoggingInterval::pause_memory() {
  peak_ = peak();
  reset_peak();
}

int64_t LoggingInterval::resume_memory() {
  const int64_t bytes = allocated_at_peak().total();
  reset_peak();
  return bytes;
}

MemoryByKind LoggingInterval::peak() const {
  const MemoryByKind latest = allocated_at_peak();
  return latest.total() > peak_.total() ? latest : peak_;
}

void LoggingInterval::add(int64_t step, const StepResult& result) {
  ++steps_;
  const at::Tensor finite = at::isfinite(result.losses);
  if (skips_alone_) {
    loss_sums_ += at::where(finite, result.losses, 0.0);
    applied_ += finite;
  } else {
    loss_sums_ += result.losses;
    first_nonfinite_ =
        at::where(finite.logical_or(first_nonfinite_.ge(0)), first_nonfinite_, static_cast<double>(step));
  }
  skipped_local_steps_ += static_cast<int64_t>(result.skipped_workers.size());
  correct_ += result.correct;
  gradient_norm_ = result.gradient_norm;
  counted_ += result.counted;
}

double LoggingInterval::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

ProcessReport LoggingInterval::report() const {
  synchronize(device_);  // work queued so far belongs to this interval
  const double ms = 1e3 * seconds();
  const ExchangeTotals reduce = engines_.reduce_totals() - reduce_;
  const ExchangeTotals gather = engines_.gather_totals() - gather_;
  const double data_wait_ms = loader_->wait_ms() - data_wait_ms_;
  const auto steps = static_cast<double>(steps_);
  const auto bytes_per_step = [&](int64_t bytes) {
    return static_cast<int64_t>(static_cast<double>(bytes) / steps);
  };
  const TimeRecord times = totals_of(train_step_.clock());
  const MemoryRecord memory = {peak()};
  std::array<double, 3> squares = {};
  if (OuterExchange* const outer = engines_.outer())
    std::copy_n(outer->squares().cpu().const_data_ptr<double>(), squares.size(), squares.begin());
  return {.correct = correct_.item<int64_t>(),
          .counted = counted_,
          .exchange_squares = squares,
          .of_process = {.data_wait_ms = data_wait_ms / steps,
                         .skipped_samples = skipped_samples_,
                         .skipped_local_steps = skipped_local_steps_,
                         .peak_process_memory_bytes = peak_process_memory_bytes(device_),
                         .peak_tensor_memory_bytes = memory.total()},
          .exchange = {.reduce_bytes = bytes_per_step(reduce.bytes_sent),
                       .gather_bytes = bytes_per_step(gather.bytes_sent),
                       .reduce_ms = reduce.in_flight_ms / steps,
                       .gather_ms = gather.in_flight_ms / steps,
                       .reduce_wait_ms = reduce.waited_ms / steps,
                       .gather_wait_ms = gather.waited_ms / steps,
                       .busy_ms = (ms - data_wait_ms - reduce.waited_ms - gather.waited_ms) / steps},
          .times = {.forward_ms = (times.forward_ms - times_.forward_ms) / steps,
                    .backward_ms = (times.backward_ms - times_.backward_ms) / steps,
                    .optimizer_ms = (times.optimizer_ms - times_.optimizer_ms) / steps},
          .memory = memory};
}

void LoggingInterval::add_losses(Summary& summary, const std::vector<double>& losses) const {
  const auto slots = static_cast<size_t>(slots_);
  double sum = 0, applied = 0;
  for (size_t number = 0; number < losses.size() / 3; ++number) {
    const double* const of_process = &losses[number / slots * 3 * slots];
    sum += of_process[number % slots];
    applied += of_process[2 * slots + number % slots];
    const auto step = static_cast<int64_t>(of_process[slots + number % slots]);
    if (step < 0 || (summary.first_nonfinite_step >= 0 && step > summary.first_nonfinite_step)) continue;
    if (step != summary.first_nonfinite_step) summary.nonfinite.slots.clear();
    summary.first_nonfinite_step = step;
    summary.nonfinite.slots.push_back(number);
  }
  const double numbers = static_cast<double>(losses.size()) / 3;
  summary.record.loss =
      applied > 0 ? sum / (applied / numbers) / numbers : std::numeric_limits<double>::quiet_NaN();
}

LoggingInterval::Summary LoggingInterval::summarize(Communicator& comm, int64_t done,
                                                    bool save_is_due) const {
  ProcessReport mine = report();
  const at::Tensor applied =
      skips_alone_ ? applied_ : at::full_like(loss_sums_, static_cast<double>(steps_ - skipped_steps_));
  mine.save_is_due = save_is_due ? 1 : 0;
  const GatheredReports gathered = gather(comm, mine, at::cat({loss_sums_, first_nonfinite_, applied}));
  Summary summary;
  summary.save_is_due = gathered.processes.front().save_is_due != 0;
  add_losses(summary, gathered.losses);
  const double s = seconds();
  TrainRecord& record = summary.record;
  record.step = done;
  record.epoch = run_steps_.epochs_after(done);
  record.lr = learning_rate(spec_.schedule, spec_.optimizer.lr(), run_steps_.length, done - 1);
  if (gradient_norm_.defined()) record.gradient_norm = gradient_norm_.item<double>();
  if (engines_.outer()) add_distances(record, gathered.processes, workers_);
  record.samples_per_s = static_cast<double>(steps_ * run_steps_.samples_per_step) / s;
  record.flops_per_s = record.samples_per_s * flops_per_sample_;
  record.step_ms = s * 1e3 / static_cast<double>(steps_);
  if (spec_.data.is_of_tokens()) {
    const int64_t tokens_per_sample = spec_.data.sequence_length();
    record.tokens_per_s = record.samples_per_s * static_cast<double>(tokens_per_sample);
    record.tokens = run_steps_.samples_after(done) * tokens_per_sample;
  }
  add_reports(record, gathered.processes);
  return summary;
}

}  // namespace sdp
