#pragma once

// One process's side of an exchange of a bucket (subnet/exchange.h). Internal to engine/.

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "engine/clocks.h"
#include "layers/tensors.h"
#include "subnet/exchange.h"

namespace sdp {

/// A range of a segment, and where it is in a flat tensor.
struct SegmentRange {
  size_t segment = 0;  ///< index in the bucket
  int64_t begin = 0;   ///< in the segment
  int64_t elements = 0;
  int64_t offset = 0;  ///< in the tensor
};

/// What this process sends and receives, which is computed once, and the buffers of the exchange in flight.
class LocalExchange {
 public:
  LocalExchange(const Exchange& exchange, Communicator& comm, ExchangeClock& clock)
      : comm_(comm),
        clock_(clock),
        options_(at::TensorOptions(scalar_type(exchange.type())).device(comm.device())),
        has_peers_(exchange.has_peers()) {
    for (int other = 0; other < comm.size(); ++other) {
      if (other == comm.rank()) received_before_own_ = received_.elements;
      sent_.add_message(exchange, comm.rank(), other);
      received_.add_message(exchange, other, comm.rank());
    }
  }

  /// In order of processes; offsets are in `send` and `receive`.
  const std::vector<SegmentRange>& sent() const { return sent_.ranges; }
  const std::vector<SegmentRange>& received() const { return received_.ranges; }
  /// Whether the range was received from a process that precedes this one.
  bool precedes_own(const SegmentRange& range) const { return range.offset < received_before_own_; }

  /// Allocates the buffers, whose values are unset.
  void allocate() {
    send = at::empty({sent_.elements}, options_);
    receive = at::empty({received_.elements}, options_);
  }
  /// Begins to exchange the buffers. Does nothing if no process has anything to send.
  void start() {
    if (!has_peers_) return;
    start_ = clock_.start(static_cast<int64_t>(send.nbytes()));
    pending_ = comm_.all_to_all(receive, send, received_.splits, sent_.splits);
  }
  void wait() { clock_.wait(std::move(start_), pending_); }
  void free() {
    send = receive = at::Tensor();
    pending_ = {};
  }

  at::Tensor send;
  at::Tensor receive;

 private:
  struct Messages {
    std::vector<SegmentRange> ranges;
    std::vector<int64_t> splits;  ///< by process
    int64_t elements = 0;

    void add_message(const Exchange& exchange, int from, int to) {
      const int64_t begin = elements;
      exchange.for_each_range(from, to, [&](size_t segment, int64_t first, int64_t count) {
        ranges.push_back({.segment = segment, .begin = first, .elements = count, .offset = elements});
        elements += count;
      });
      splits.push_back(elements - begin);
    }
  };

  Communicator& comm_;
  ExchangeClock& clock_;
  at::TensorOptions options_;
  bool has_peers_;
  Messages sent_;
  Messages received_;
  int64_t received_before_own_ = 0;
  ExchangeClock::Start start_;
  Pending pending_;
};

}  // namespace sdp
