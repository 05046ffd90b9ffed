#pragma once

// What the parts of a step take.

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>

namespace sdp {

enum class StepPart { kForward, kBackward, kOptimizer };

/// On a CPU by the host's clock. On CUDA the host is ahead of the device, so that events are put into its
/// stream, which neither side waits for; they are read when the device is past them. Who wants the sums of
/// all that was given to the device synchronizes with it first, as the trainer does at the logging interval
/// anyway.
class StepClock {
 public:
  explicit StepClock(c10::Device device) : device_(device) {}

  /// What comes from now on is of this part, or of none.
  void enter(std::optional<StepPart> part);
  /// Since the clock was made; on CUDA what the device is done with.
  double total_ms(StepPart part);

 private:
  /// On CUDA: here the part began.
  struct Mark {
    std::optional<StepPart> part;
    c10::Event event;
  };
  void add(std::optional<StepPart> part, double ms);
  void read_marks();

  c10::Device device_;
  std::array<double, 3> totals_ms_ = {};  ///< by StepPart
  // On a CPU the part under way.
  std::optional<StepPart> part_;
  std::chrono::steady_clock::time_point began_ = {};
  std::deque<Mark> marks_;
};

}  // namespace sdp
