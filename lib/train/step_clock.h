#pragma once

// Time spent in each part of a step.

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>

namespace sdp {

enum class StepPart { kForward, kBackward, kOptimizer };

/// On a CPU, measured with the host's clock. On CUDA the host runs ahead of the device, so the clock records
/// events in the device's stream. Neither side waits for them; they are read once the device has passed them.
/// For totals that include all queued work, synchronize with the device first, as the trainer does at every
/// logging interval.
class StepClock {
 public:
  explicit StepClock(c10::Device device) : device_(device) {}

  /// Time from now on counts toward this part, or toward none.
  void enter(std::optional<StepPart> part);
  /// Total since construction; on CUDA, of the work that the device has finished.
  double total_ms(StepPart part);

 private:
  /// CUDA only: the point in the stream where the part began.
  struct Mark {
    std::optional<StepPart> part;
    c10::Event event;
  };
  void add(std::optional<StepPart> part, double ms);
  void read_marks();

  c10::Device device_;
  std::array<double, 3> totals_ms_ = {};  ///< by StepPart
  // CPU only: the current part.
  std::optional<StepPart> part_;
  std::chrono::steady_clock::time_point began_ = {};
  std::deque<Mark> marks_;
};

}  // namespace sdp
