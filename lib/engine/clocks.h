#pragma once

// Time of a step: of its parts, of exchanges in flight, and of waiting for them, which is the part of an
// exchange that no computation overlaps.

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>

#include "comm/communicator.h"

namespace sdp {

/// Sums over exchanges.
struct ExchangeTotals {
  int64_t bytes_sent = 0;
  double in_flight_ms = 0;  ///< time with an exchange in flight; with NCCL the duration of its collectives
  double waited_ms = 0;     ///< time spent waiting only

  ExchangeTotals operator-(const ExchangeTotals& earlier) const {
    return {.bytes_sent = bytes_sent - earlier.bytes_sent,
            .in_flight_ms = in_flight_ms - earlier.in_flight_ms,
            .waited_ms = waited_ms - earlier.waited_ms};
  }
};

class ExchangeClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Start {
    TimePoint time;
    std::optional<c10::Event> event = {};  ///< NCCL
  };

  explicit ExchangeClock(const Communicator& comm)
      : device_(comm.device()), is_stream_ordered_(comm.is_stream_ordered()) {}

  /// Records the beginning of an exchange that sends `bytes_sent` bytes to other processes.
  Start start(int64_t bytes_sent);
  /// Waits for the exchange and adds it to the totals. Wait for the exchanges of a clock in the order in
  /// which they began.
  ///
  /// With NCCL, an exchange counts as in flight for the duration that NCCL reports; these durations add up
  /// because NCCL runs its collectives one after another. If the backend reports no duration, the exchange
  /// counts until the stream has finished waiting for it. With Gloo on CUDA, the waiting time of the host
  /// includes device work queued before the exchange.
  void wait(Start start, Pending& pending);
  /// Totals since the clock was created; with NCCL only of exchanges that the device has completed.
  const ExchangeTotals& totals();

 private:
  struct OnDevice {
    c10::Event began, before, after;
    Pending exchange;  ///< has been waited for
  };

  at::Device device_;
  bool is_stream_ordered_;
  ExchangeTotals totals_;
  TimePoint busy_until_;
  std::deque<OnDevice> on_device_;
};

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
