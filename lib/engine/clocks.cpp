#include "engine/clocks.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace sdp {
namespace {

double ms_between(ExchangeClock::TimePoint begin, ExchangeClock::TimePoint end) {
  return std::max(0.0, std::chrono::duration<double, std::milli>(end - begin).count());
}

/// An event recorded now in the device's current stream, for c10::Event::elapsedTime. Not on a CPU.
c10::Event timed_event(c10::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

ExchangeClock::Start ExchangeClock::start(int64_t bytes_sent) {
  totals_.bytes_sent += bytes_sent;
  Start start{.time = std::chrono::steady_clock::now()};
  if (is_stream_ordered_) start.event = timed_event(device_);
  return start;
}

void ExchangeClock::wait(Start start, Pending& pending) {
  if (!pending.is_under_way()) return;
  if (is_stream_ordered_) {
    c10::Event before = timed_event(device_);
    pending.wait();
    on_device_.push_back({.began = std::move(*start.event),
                          .before = std::move(before),
                          .after = timed_event(device_),
                          .exchange = pending});
    return;
  }
  const TimePoint before = std::chrono::steady_clock::now();
  pending.wait();
  const TimePoint after = std::chrono::steady_clock::now();
  const TimePoint completed = pending.completed_at().value_or(after);
  totals_.waited_ms += ms_between(before, after);
  totals_.in_flight_ms += ms_between(std::max(start.time, busy_until_), completed);
  busy_until_ = std::max(busy_until_, completed);
}

const ExchangeTotals& ExchangeClock::totals() {
  for (; !on_device_.empty() && on_device_.front().after.query(); on_device_.pop_front()) {
    const OnDevice& exchange = on_device_.front();
    const std::optional<double> duration_ms = exchange.exchange.duration_ms();
    totals_.in_flight_ms += duration_ms ? *duration_ms : exchange.began.elapsedTime(exchange.after);
    totals_.waited_ms += exchange.before.elapsedTime(exchange.after);
  }
  return totals_;
}

void StepClock::enter(std::optional<StepPart> part) {
  if (!device_.is_cpu()) {
    read_marks();  // so that marks do not pile up between two lines of the metrics
    marks_.push_back({part, timed_event(device_)});
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  add(part_, std::chrono::duration<double, std::milli>(now - began_).count());
  part_ = part;
  began_ = now;
}

double StepClock::total_ms(StepPart part) {
  read_marks();
  return totals_ms_[static_cast<size_t>(part)];
}

void StepClock::add(std::optional<StepPart> part, double ms) {
  if (part) totals_ms_[static_cast<size_t>(*part)] += ms;
}

/// Reads the marks that the device has passed.
void StepClock::read_marks() {
  for (; marks_.size() > 1 && marks_[1].event.query(); marks_.pop_front())
    if (marks_[0].part) add(marks_[0].part, marks_[0].event.elapsedTime(marks_[1].event));
}

}  // namespace sdp
