#pragma once

#include <chrono>

namespace sdp {

/// Decides when the next checkpoint is due by time (checkpoint.every_minutes), measured from the start of the
/// run or the end of the last save, whatever caused it.
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
