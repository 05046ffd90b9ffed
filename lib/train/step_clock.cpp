#include "train/step_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace sdp {

void StepClock::enter(std::optional<StepPart> part) {
  if (!device_.is_cpu()) {
    read_marks();  // so that marks do not pile up between two lines of the metrics
    c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    marks_.push_back({part, std::move(event)});
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
