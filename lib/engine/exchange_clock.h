#pragma once

// How long exchanges are under way, and how long the process, or with NCCL its stream, waits for them: what
// is left of an exchange when as much computing as possible overlaps it.

#include <c10/core/Event.h>

#include <chrono>
#include <deque>
#include <optional>

#include "comm/communicator.h"

namespace sdp {

/// Sums over exchanges.
struct ExchangeTotals {
  int64_t bytes_sent = 0;
  double in_flight_ms = 0;  ///< some exchange was under way; with NCCL what its collectives took
  double waited_ms = 0;     ///< nothing but waiting was done

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

  /// An exchange that sends so much to other processes begins.
  Start start(int64_t bytes_sent);
  /// Waits for the exchange and books it. Exchanges of a clock are waited for in the order they began in.
  /// With NCCL an exchange counts as under way for as long as NCCL says that it took. Its collectives run one
  /// after another, so that these times add up. Where the backend does not report it, until its wait is over
  /// on the stream. With Gloo on CUDA the host waits for what the device computes before an exchange, too.
  void wait(Start start, Pending& pending);
  /// Since the clock was made; with NCCL what the device is done with.
  const ExchangeTotals& totals();

 private:
  struct OnDevice {
    c10::Event began, before, after;
    Pending exchange;  ///< waited for
  };
  c10::Event record() const;

  at::Device device_;
  bool is_stream_ordered_;
  ExchangeTotals totals_;
  TimePoint busy_until_;
  std::deque<OnDevice> on_device_;
};

}  // namespace sdp
