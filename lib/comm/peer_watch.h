#pragma once

// What the processes send each other beside their collectives: that they end, and how; that they are to stop;
// where they are. Internal to comm/.

#include <sys/types.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/sockets.h"
#include "comm/stop_agreement.h"

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

/// Where a process is.
struct Whereabouts {
  int64_t collectives = 0;  ///< collectives it has begun; all processes begin the same ones in the same order
  std::string place = {};   ///< "evaluation, all-reduce"; may be empty; at most 47 characters are sent
};

/// Whom a collective waited for until its time-out though nobody has left. [W]; nothing for ranks that do not
/// answer. `rank`: the own one, which is in that collective.
Loss describe_delay(const std::vector<std::optional<Whereabouts>>& whereabouts, int rank);

/// "rank 1" or "ranks 1, 2 and 3".
std::string list_ranks(const std::vector<int>& ranks);

/// Sees other processes end, at once and whatever this process is doing. Collectives alone do not show which
/// process was lost: one that ends because of it breaks the connections of others in turn, NCCL may not
/// notice at all, and a process that computes or writes notices late. It also carries requests to stop
/// (StopAgreement), which must not wait for a collective, and asks where a process is that does not come.
///
/// Every two processes keep a TCP connection of their own. In a run that is left alone nothing is sent over
/// it; the kernel closes it however a process ends. A thread waits on all of them.
/// A host that is gone without closing them is noticed after about 30 s.
class PeerWatch {
 public:
  /// What the watch's thread calls; each may end the process. Empty: nothing is called.
  struct Events {
    /// Others were lost and this object still exists kPatience later, after leave(kPeerLost). Not after
    /// leave(kError): what is lost then is lost because of it.
    std::function<void(const std::vector<Departure>&)> unnoticed = {};
    /// A stop was asked for, of this process or another one, before the training of all had begun.
    std::function<void()> stopped_before_training = {};
    /// A stop was asked for, and these ranks have not answered within answer_timeout.
    std::function<void(const std::vector<int>&)> unanswered = {};
    /// Options::parent has ended.
    std::function<void()> orphaned = {};
    std::function<Whereabouts()> whereabouts = {};  ///< of this process
  };
  struct Options {
    int rank = 0;
    int size = 1;
    /// Rank 0's host, from which the address of this one follows; empty when all are on this host.
    std::string master = {};
    std::chrono::milliseconds timeout = {};  ///< for meeting the others
    int stop_descriptor = -1;                ///< readable once this process is asked to stop; -1: never
    pid_t parent = 0;  ///< where it is no longer this process's parent, that asks for a stop; 0: any may be
    std::chrono::milliseconds answer_timeout = std::chrono::seconds(10);
    Events events = {};
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

  /// Where all processes are, [W]; nothing for those that have not answered within `limit`.
  std::vector<std::optional<Whereabouts>> ask_where(std::chrono::milliseconds limit);

  /// See StopAgreement.
  bool stops_here() { return agreement_.stops_here(); }
  bool stops_within() { return agreement_.stops_within(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// What is sent: of one size, so that an incomplete one is recognised.
  struct Message {
    enum class Kind : char { kLeaves = 'l', kStops = 's', kWhere = '?', kHere = '!' };
    int64_t number = 0;  ///< kLeaves: the Departure, kStops: stop points passed, kHere: collectives begun
    Kind kind = Kind::kLeaves;
    std::array<char, 47> text = {};  ///< kHere: the place, ended by zeros
  };
  /// What has come from a process and is not yet a whole message.
  struct Inbox {
    std::array<char, sizeof(Message)> bytes = {};
    size_t size = 0;
  };

  void watch();
  /// Until when the thread may sleep; nothing: until something comes.
  std::optional<Clock::time_point> next_deadline() const;
  void check_deadlines();
  void hear(size_t peer);
  void read(size_t peer, const Message& message);
  void send(size_t peer, const Message& message) const;
  void send_all(const Message& message) const;
  Message here() const;
  void lose(size_t peer, Departure departure);
  void begin_stop();
  void end_before_training();
  bool has_left_with_error();

  Options options_;
  std::vector<Socket> peers_;  ///< [W]; empty at the own rank
  Socket end_;                 ///< readable when the thread is to end
  StopAgreement agreement_;

  // Of the thread alone.
  std::vector<Inbox> inboxes_;                      ///< [W]
  std::optional<Clock::time_point> stop_asked_at_;  ///< until all have answered
  std::vector<bool> closed_;                        ///< [W]
  bool called_unnoticed_ = false;
  bool ended_before_training_ = false;
  bool is_orphan_ = false;

  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  std::vector<Departure> departures_;                    ///< [W]
  std::vector<std::optional<Whereabouts>> whereabouts_;  ///< [W]
  std::optional<Clock::time_point> first_loss_;
  Departure said_ = Departure::kNone;  ///< by leave()
  std::thread thread_;
};

}  // namespace sdp
