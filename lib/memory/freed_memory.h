#pragma once

// What tests do to memory that is freed, so that whoever still reads it is found.

namespace sdp {

/// For tests. From now on, for good, memory of CPU tensors is filled with bytes 0xFF before it is freed,
/// which is NaN in every floating type. LibTorch leaves the old values there, so that a read of freed memory
/// goes well for as long as nobody else gets that memory. What was allocated before the call is freed as it
/// was. A second call does nothing.
void poison_freed_memory();

}  // namespace sdp
