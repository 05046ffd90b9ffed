#pragma once

// A backend for tests that behaves as NCCL may, and Gloo on a CPU never does.

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace sdp {

/// Over `inner`, another backend of the same world. Nothing is exchanged before somebody waits for it: an
/// all-to-all fills what it is to receive with bytes 0xFF, which is NaN in every floating type, and is
/// carried out in wait(), in the order of the calls, from what the send buffer holds by then. So a value that
/// is read before it came is NaN; a buffer that is written, or given back, while the exchange is under way
/// sends something else; and an exchange that nobody waits for never comes. Other collectives, which the host
/// waits for at once, are those of `inner`.
c10::intrusive_ptr<c10d::Backend> late_backend(c10::intrusive_ptr<c10d::Backend> inner);

}  // namespace sdp
