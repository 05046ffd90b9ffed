#pragma once

// One process of a group whose others do not exist, as PyTorch's FakeProcessGroup: to measure what one of
// many needs.

#include <memory>

#include "comm/communicator.h"

namespace sdp {

/// Rank `rank` of `size`: every collective returns at once, reductions with the own values. What the others
/// would send to an all-to-all is zeros, and traffic is counted as if it were sent.
std::unique_ptr<Communicator> fake_communicator(int rank, int size, at::Device device);

}  // namespace sdp
