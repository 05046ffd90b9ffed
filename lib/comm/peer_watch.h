#pragma once

// Which of the other processes have ended, and how. Internal to comm/.

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/sockets.h"

namespace sdp {

/// How a process has left the others. The values are what it sends to them.
enum class Departure : char {
  kNone = 0,        ///< it is still there
  kFinished = 'f',  ///< its work was done
  kError = 'e',     ///< an error of its own
  kPeerLost = 'p',  ///< it lost another process
  kSilent = 's'     ///< its connection broke without a word: killed, crashed, or its host is gone; never sent
};

/// "Rank 0 lost rank 1", and why that may be. departures: [W], of every rank.
struct Loss {
  std::string who;  ///< "rank 1", "ranks 1 and 3", or "the other processes" where nobody is to blame
  std::string why;  ///< one or two sentences
};
Loss describe_loss(const std::vector<Departure>& departures);

/// Sees other processes end, at once and whatever this process is doing. Collectives alone do not tell which
/// process was lost: one that ends because of it breaks the connections of others in turn, NCCL may not
/// notice at all, and a process that computes or writes notices late.
///
/// Every two processes keep a TCP connection of their own. Nothing is sent over it but one byte, by a process
/// that leaves in an orderly way; the kernel closes it however a process ends. A thread waits on all of them.
/// A host that is gone without closing them is noticed after about 30 s.
class PeerWatch {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    /// Rank 0's host, from which the address of this one follows; empty when all are on this host.
    std::string master = {};
    std::chrono::milliseconds timeout = {};  ///< for meeting the others
    /// Called by the watch's thread when others were lost and this object still exists kPatience later,
    /// after leave(kPeerLost). May end the process. Empty: nothing is called.
    std::function<void(const std::vector<Departure>&)> unnoticed = {};
  };
  static constexpr std::chrono::seconds kPatience{2};

  /// Meets all others, who find each other through the store. Throws std::runtime_error or c10d's errors.
  PeerWatch(c10d::Store& store, Options options);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  /// Tells all others. Only the first word counts.
  void leave(Departure how);

  /// Who has left, [W], after an operation has failed: waits up to `limit` until somebody left without a word
  /// or with an error of its own, and then a moment for others that did so at the same time.
  std::vector<Departure> after_failure(std::chrono::milliseconds limit);

 private:
  void watch();
  void hear(size_t peer);

  Options options_;
  std::vector<Socket> peers_;  ///< [W]; empty at the own rank
  Socket stop_;                ///< readable when the thread is to end
  std::mutex mutex_;           ///< of what follows
  std::condition_variable changed_;
  std::vector<Departure> departures_;
  std::vector<bool> closed_;
  std::optional<std::chrono::steady_clock::time_point> first_loss_;
  bool said_ = false;
  std::thread thread_;
};

}  // namespace sdp
