#include "engine/exchange_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace sdp {
namespace {

double ms_between(ExchangeClock::TimePoint begin, ExchangeClock::TimePoint end) {
  return std::max(0.0, std::chrono::duration<double, std::milli>(end - begin).count());
}

}  // namespace

c10::Event ExchangeClock::record() const {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return event;
}

ExchangeClock::Start ExchangeClock::start(int64_t bytes_sent) {
  totals_.bytes_sent += bytes_sent;
  Start start{.time = std::chrono::steady_clock::now()};
  if (is_stream_ordered_) start.event = record();
  return start;
}

void ExchangeClock::wait(Start start, Pending& pending) {
  if (!pending.is_under_way()) return;
  if (is_stream_ordered_) {
    c10::Event before = record();
    pending.wait();
    on_device_.push_back({.began = std::move(*start.event),
                          .before = std::move(before),
                          .after = record(),
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

}  // namespace sdp
