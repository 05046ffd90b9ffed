#include "train/interval.h"

#include <ATen/ATen.h>

#include <limits>

#include "device/device.h"
#include "memory/allocations.h"

namespace sdp {
namespace {

TimeRecord totals_of(StepClock& clock) {
  return {.forward_ms = clock.total_ms(StepPart::kForward),
          .backward_ms = clock.total_ms(StepPart::kBackward),
          .optimizer_ms = clock.total_ms(StepPart::kOptimizer)};
}

}  // namespace

Interval::Interval(Engine& engine, TrainStep& train_step, const Feed* feed, at::Device device)
    : engine_(engine),
      train_step_(train_step),
      feed_(feed),
      device_(device),
      slots_(static_cast<int64_t>(engine.store().slots().size())) {
  begin();
}

void Interval::begin() {
  const at::TensorOptions fp64 = at::TensorOptions(at::kDouble).device(device_);
  loss_sums_ = at::zeros({slots_}, fp64);
  first_nonfinite_ = at::full({slots_}, -1, fp64);
  correct_ = at::zeros({}, at::TensorOptions(at::kLong).device(device_));
  gradient_norm_.reset();
  counted_ = steps_ = skipped_steps_ = skipped_samples_ = 0;
  began_ = std::chrono::steady_clock::now();
  data_wait_ms_ = feed_ ? feed_->wait_ms() : 0;
  times_ = totals_of(train_step_.clock());
  reduce_ = engine_.reduce_totals();
  gather_ = engine_.gather_totals();
  peak_ = {};
  reset_peak();
  reset_peak_memory(device_);
}

void Interval::pause_memory() {
  peak_ = peak();
  reset_peak();
}

int64_t Interval::resume_memory() {
  const int64_t bytes = allocated_at_peak().total();
  reset_peak();
  return bytes;
}

MemoryByKind Interval::peak() const {
  const MemoryByKind latest = allocated_at_peak();
  return latest.total() > peak_.total() ? latest : peak_;
}

void Interval::add(int64_t step, const StepResult& result) {
  ++steps_;
  loss_sums_ += result.losses;
  correct_ += result.correct;
  gradient_norm_ = result.gradient_norm;
  counted_ += result.counted;
  first_nonfinite_ = at::where(at::isfinite(result.losses).logical_or(first_nonfinite_.ge(0)),
                               first_nonfinite_, static_cast<double>(step));
}

double Interval::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

ProcessReport Interval::report() const {
  synchronize(device_);  // work queued so far belongs to this interval
  const double ms = 1e3 * seconds();
  const ExchangeTotals reduce = engine_.reduce_totals() - reduce_;
  const ExchangeTotals gather = engine_.gather_totals() - gather_;
  const double data_wait_ms = feed_->wait_ms() - data_wait_ms_;
  const auto steps = static_cast<double>(steps_);
  const auto bytes_per_step = [&](int64_t bytes) {
    return static_cast<int64_t>(static_cast<double>(bytes) / steps);
  };
  const TimeRecord times = totals_of(train_step_.clock());
  const MemoryRecord memory = {peak()};
  return {.in_flight_ms = reduce.in_flight_ms + gather.in_flight_ms,
          .waited_ms = reduce.waited_ms + gather.waited_ms,
          .correct = correct_.item<int64_t>(),
          .counted = counted_,
          .of_process = {.data_wait_ms = data_wait_ms / steps,
                         .skipped_samples = skipped_samples_,
                         .peak_process_memory_bytes = peak_process_memory_bytes(device_),
                         .peak_tensor_memory_bytes = memory.total()},
          .exchange = {.reduce_bytes = bytes_per_step(reduce.bytes_sent),
                       .publish_bytes = bytes_per_step(gather.bytes_sent),
                       .reduce_ms = reduce.in_flight_ms / steps,
                       .publish_ms = gather.in_flight_ms / steps,
                       .reduce_wait_ms = reduce.waited_ms / steps,
                       .publish_wait_ms = gather.waited_ms / steps,
                       .busy_ms = (ms - data_wait_ms - reduce.waited_ms - gather.waited_ms) / steps},
          .times = {.forward_ms = (times.forward_ms - times_.forward_ms) / steps,
                    .backward_ms = (times.backward_ms - times_.backward_ms) / steps,
                    .optimizer_ms = (times.optimizer_ms - times_.optimizer_ms) / steps},
          .memory = memory};
}

std::optional<double> Interval::gradient_norm() const {
  return gradient_norm_.defined() ? std::optional(gradient_norm_.item<double>()) : std::nullopt;
}

at::Tensor Interval::losses() const {
  return at::cat({loss_sums_, first_nonfinite_});
}

Interval::Losses Interval::combine(const std::vector<double>& gathered) const {
  const auto slots = static_cast<size_t>(slots_);
  Losses losses;
  double sum = 0;
  for (size_t number = 0; number < gathered.size() / 2; ++number) {
    const double* const of_process = &gathered[number / slots * 2 * slots];
    sum += of_process[number % slots];
    const auto step = static_cast<int64_t>(of_process[slots + number % slots]);
    if (step < 0 || (losses.first_nonfinite_step >= 0 && step > losses.first_nonfinite_step)) continue;
    if (step != losses.first_nonfinite_step) losses.nonfinite.slots.clear();
    losses.first_nonfinite_step = step;
    losses.nonfinite.slots.push_back(number);
  }
  const auto applied = static_cast<double>(steps_ - skipped_steps_);
  losses.mean = applied > 0 ? sum / applied / (static_cast<double>(gathered.size()) / 2)
                            : std::numeric_limits<double>::quiet_NaN();
  return losses;
}

}  // namespace sdp
