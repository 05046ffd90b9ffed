#pragma once

// Overwrites freed memory, to find code that still reads it.

namespace sdp {

/// From now on, permanently, the memory of CPU tensors is filled with bytes 0xFF before it is
/// freed; this is NaN in every floating-point type. LibTorch leaves the old values in place, so reads of
/// freed memory go unnoticed until the memory is reused. Memory allocated before the call is freed unchanged.
/// A second call does nothing.
void poison_freed_memory();

}  // namespace sdp
