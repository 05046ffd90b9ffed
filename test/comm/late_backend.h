#pragma once

// A backend for tests that is as late as NCCL may be and Gloo on a CPU never is.

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace sdp {

/// Wraps `inner`, another backend of the same world, and delays every all-to-all until it is waited for. The
/// call fills the receive buffer with bytes 0xFF, which is NaN in every floating-point type. wait() carries
/// out the exchanges in the order of the calls, from the send buffers' contents at that time. So a value that
/// is read too early is NaN; a send buffer that is overwritten while the exchange is in flight sends the
/// wrong data, and a freed one is an error; and an exchange that is never waited for does not happen. Other
/// collectives, for which the host waits at once, are passed to `inner`.
c10::intrusive_ptr<c10d::Backend> late_backend(c10::intrusive_ptr<c10d::Backend> inner);

}  // namespace sdp
