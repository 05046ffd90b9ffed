#pragma once

// How processes that know a store come to have a TCP connection between every two of them. Internal to comm/.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <string>
#include <vector>

#include "comm/sockets.h"

namespace sdp {

struct Meeting {
  int rank = 0;
  int size = 1;
  /// Rank 0's host, from which the address of this one follows; empty when all are on this host.
  std::string master = {};
  Deadline deadline = {};
};

/// A connection with every other process, [W], not open at the own rank: with lower ranks made here, with
/// higher ones by them. Whoever else connects is turned away: it does not know the listener's token, which is
/// in the store, or says nothing for 5 s. Many may do so at a time, and keep nobody waiting.
/// Throws std::runtime_error, which names the ranks that did not come, or the store's errors.
std::vector<Socket> meet_peers(c10d::Store& store, const Meeting& meeting);

}  // namespace sdp
