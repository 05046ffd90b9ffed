#pragma once

// One process of a group whose other processes do not exist, like PyTorch's FakeProcessGroup. It is used to
// measure the memory and time of one of many processes.

#include <memory>

#include "comm/communicator.h"

namespace sdp {

/// Rank `rank` of `size`. Every collective returns at once. Reductions return this rank's values, an
/// all-to-all receives zeros, and traffic is counted as if it had been sent.
std::unique_ptr<Communicator> fake_communicator(int rank, int size, at::Device device);

}  // namespace sdp
