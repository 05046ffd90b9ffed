#include "train/step_watch.h"

#include <fmt/format.h>

#include <exception>

#include "process/signals.h"

namespace sdp {

StepWatch::StepWatch(const Logger& log, const Communicator& comm) : log_(log), comm_(comm) {
  if (comm.rank() == 0) thread_ = std::thread([this] { watch(); });
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
    const std::string place = comm_.place();
    const std::string text = fmt::format("step {} is running: {} s so far ({})", running_->step,
                                         running_->next.count(), place.empty() ? "computing" : place);
    write_line(text);
    try {
      log_.record(text);
    } catch (const std::exception&) {
      // The training thread's next line fails, too, and ends the run.
    }
    running_->next *= 2;
  }
}

}  // namespace sdp
