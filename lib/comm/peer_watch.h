#pragma once

// Messages that processes send each other in addition to their collectives: that they end and how, that all
// are to stop, and where they are. Internal to comm/.

#include <sys/types.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/sockets.h"
#include "comm/stop_agreement.h"
#include "process/condition_variable.h"

namespace sdp {

/// How a process has left the others. The values are sent to the other processes.
enum class Departure : char {
  kNone = 0,        ///< it is still connected
  kFinished = 'f',  ///< it finished its work
  kError = 'e',     ///< it had an error of its own
  kPeerLost = 'p',  ///< it lost another process
  kSilent = 's'     ///< connection broke without notice (killed, crashed, or its host is gone); never sent
};

/// Which ranks were lost, and the likely reason. departures: [W], of every rank.
struct ProcessLoss {
  std::string who;  ///< "rank 1", "ranks 1 and 3", or "the other processes" if the cause is unknown
  std::string why;  ///< one or two sentences
};
ProcessLoss describe_process_loss(const std::vector<Departure>& departures);

/// Where a process is in its program.
struct ProcessStatus {
  int64_t collectives = 0;  ///< collectives it has begun; all processes begin the same ones in the same order
  std::string place = {};   ///< "evaluation, all-reduce"; may be empty; at most 46 characters are sent
};

/// Which ranks a collective waited for until its time-out although none has left. statuses: [W]; nullopt
/// for ranks that do not answer. `rank`: this rank, which is in that collective.
ProcessLoss describe_delay(const std::vector<std::optional<ProcessStatus>>& statuses, int rank);

/// "rank 1" or "ranks 1, 2 and 3".
std::string list_ranks(const std::vector<int>& ranks);

/// Notices at once that other processes have ended, whatever this process is doing. Collectives do not show
/// which process was lost first: a process that ends because of the loss breaks the connections of others in
/// turn, NCCL may not notice at all, and a process that computes or writes notices late. The watch also
/// carries requests to stop (StopAgreement), which must not wait for a collective, and asks processes that
/// are late where they are.
///
/// The watch keeps a separate TCP connection between every two processes. Nothing is sent over it during an
/// undisturbed run; the kernel closes it however a process ends. A thread waits on all connections.
/// A host that disappears without closing its connections is noticed after about 30 s.
class PeerWatch {
 public:
  /// Callbacks of the watch's thread; each may end the process. Empty: nothing is called.
  struct Events {
    /// Others were lost and this object still exists kPatience later; leave(kPeerLost) was called before. Not
    /// called after leave(kError), because the others are then lost because of this process.
    std::function<void(const std::vector<Departure>&)> unnoticed = {};
    /// This process or another one was asked to stop before all processes had begun training.
    std::function<void()> stopped_before_training = {};
    /// This process or another one was asked to stop, and training has begun on all of them.
    std::function<void()> stopping = {};
    /// A stop was asked for, and these ranks have not answered within answer_timeout.
    std::function<void(const std::vector<int>&)> unanswered = {};
    /// Options::parent has ended.
    std::function<void()> orphaned = {};
    std::function<ProcessStatus()> status = {};  ///< of this process
  };
  struct Options {
    int rank = 0;
    int size = 1;
    /// Rank 0's host, which determines the address that this host announces; empty if all ranks are on this
    /// host.
    std::string master = {};
    std::chrono::milliseconds timeout = {};  ///< for meeting the others
    int stop_descriptor = -1;                ///< readable once this process is asked to stop; -1: never
    pid_t parent = 0;  ///< this process is asked to stop when this parent ends; 0: no parent is watched
    std::chrono::milliseconds answer_timeout = std::chrono::seconds(10);
    Events events = {};
  };
  static constexpr std::chrono::seconds kPatience{2};

  /// Connects to all other processes, which find each other through the store. Throws std::runtime_error or
  /// c10d's errors.
  PeerWatch(c10d::Store& store, Options options);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  /// Informs all others how this process leaves. Only the first call counts.
  void leave(Departure how);

  /// Which processes have left, [W]. Call it after an operation has failed: it waits up to `limit` until a
  /// process has left without notice or with an error of its own, and then a moment for other processes that
  /// do so at the same time.
  std::vector<Departure> after_failure(std::chrono::milliseconds limit);

  /// Where all processes are, [W]; nullopt for those that have not answered within `limit`.
  std::vector<std::optional<ProcessStatus>> ask_status(std::chrono::milliseconds limit);

  /// See StopAgreement.
  bool stops_here() { return agreement_.stops_here(); }
  bool stops_within() { return agreement_.stops_within(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// All messages have the same size, so that an incomplete one is recognized.
  struct Message {
    enum class Kind : char { kLeaves = 'l', kStops = 's', kWhere = '?', kHere = '!' };
    int64_t number = 0;  ///< kLeaves: the Departure, kStops: stop points passed, kHere: collectives begun
    Kind kind = Kind::kLeaves;
    std::array<char, 47> text = {};  ///< kHere: the place, terminated by zeros
  };
  /// Bytes received from a process that are not yet a whole message.
  struct Inbox {
    std::array<char, sizeof(Message)> bytes = {};
    size_t size = 0;
  };

  void watch();
  /// When the thread must wake up at the latest; nullopt: only when a message arrives.
  std::optional<Clock::time_point> next_deadline() const;
  void check_deadlines();
  void receive(size_t peer);
  void read(size_t peer, const Message& message);
  void send(size_t peer, const Message& message) const;
  void send_all(const Message& message) const;
  Message here() const;
  void lose(size_t peer, Departure departure);
  void begin_stop();
  void end_before_training();

  Options options_;
  std::vector<Descriptor> peers_;  ///< [W]; closed for this rank
  Descriptor end_;                 ///< readable when the thread is to end
  StopAgreement agreement_;

  // Used by the thread only.
  std::vector<Inbox> inboxes_;                      ///< [W]
  std::optional<Clock::time_point> stop_asked_at_;  ///< set until all have answered
  std::vector<bool> closed_;                        ///< [W]
  bool called_unnoticed_ = false;
  bool ended_before_training_ = false;
  bool is_orphan_ = false;

  std::mutex mutex_;  ///< protects the following members
  std::condition_variable changed_;
  std::vector<Departure> departures_;                   ///< [W]
  std::vector<std::optional<ProcessStatus>> statuses_;  ///< [W]
  std::optional<Clock::time_point> first_loss_;
  Departure said_ = Departure::kNone;  ///< set by leave()
  std::thread thread_;
};

}  // namespace sdp
