#pragma once

#include <chrono>

namespace sdp {

/// When the next checkpoint is due by time (checkpoint.every_minutes), counted from the start of the run or
/// the end of the last one saved for whatever reason.
class SaveTimer {
 public:
  using Clock = std::chrono::steady_clock;

  /// minutes: 0 for never.
  SaveTimer(double minutes, Clock::time_point now) : minutes_(minutes), began_(now) {}

  bool is_due(Clock::time_point now) const;
  void restart(Clock::time_point now) { began_ = now; }

 private:
  double minutes_;
  Clock::time_point began_;
};

}  // namespace sdp
