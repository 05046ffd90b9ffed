#include "train/step_watch.h"

#include <fmt/format.h>

#include "process/write_line.h"

namespace sdp {

StepWatch::StepWatch(bool is_shown) {
  if (is_shown) thread_ = std::thread([this] { watch(); });
}

StepWatch::~StepWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StepWatch::begin(int64_t step) {
  const std::lock_guard lock(mutex_);
  running_ = Running{.step = step, .began = Clock::now(), .next = std::chrono::seconds(10)};
}

void StepWatch::end() {
  const std::lock_guard lock(mutex_);
  running_.reset();
}

void StepWatch::watch() {
  std::unique_lock lock(mutex_);
  // Steps begin and end often, so the thread looks at the time instead of being woken by them.
  while (!ends_.wait_for(lock, std::chrono::seconds(1), [this] { return is_over_; })) {
    if (!running_ || Clock::now() - running_->began < running_->next) continue;
    write_line(fmt::format("step {} is running: {} s so far", running_->step, running_->next.count()));
    running_->next *= 2;
  }
}

}  // namespace sdp
