#include "checkpoint/save_timer.h"

namespace sdp {

bool SaveTimer::is_due(Clock::time_point now) const {
  return minutes_ > 0 && std::chrono::duration<double, std::ratio<60>>(now - began_).count() >= minutes_;
}

}  // namespace sdp
