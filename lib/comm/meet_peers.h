#pragma once

// Opens a TCP connection between every two processes that share a store. Internal to comm/.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <vector>

#include "comm/sockets.h"

namespace sdp {

struct Meeting {
  int rank = 0;
  int size = 1;
  /// Rank 0's host, which determines the address that this host announces; empty if all ranks are on this
  /// host.
  std::string master = {};
  Deadline deadline = {};
};

/// Returns a connection to every other process, [W], with a closed socket for this rank. Each process
/// connects to the lower ranks and accepts connections from the higher ranks. A listener sends every client a
/// number that it uses once, and turns it away unless it answers within 5 s with its rank and an HMAC of
/// both, whose key is a secret in the store. Many strangers may connect at a time without delaying the ranks.
/// Throws std::runtime_error, which names the missing ranks, or the store's errors.
std::vector<Socket> meet_peers(c10d::Store& store, const Meeting& meeting);

}  // namespace sdp
