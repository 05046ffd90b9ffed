#pragma once

// The state behind a Communicator, and how it is created. Internal to comm/.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "comm/communicator.h"
#include "comm/peer_watch.h"
#include "comm/rendezvous.h"

namespace sdp {

struct Communicator::Connection {
  int rank = 0;
  int size = 1;
  at::Device device = at::kCPU;
  std::unique_ptr<Announcement> announced;    ///< rank 0's, of the store's file
  c10::intrusive_ptr<c10d::Store> store;      ///< rendezvous; local to the process in a world of one
  c10::intrusive_ptr<c10d::Backend> backend;  ///< null for a world of one without NCCL
  bool is_stream_ordered = false;             ///< see Communicator
  std::string refusal;                        ///< why the processes must not continue; the same on all ranks
  bool serves_store = false;                  ///< the store ends with this process
  bool is_process = false;                    ///< the rank is a process, not a thread of a test
  /// The watch's thread reads these too:
  std::atomic<const char*> phase = nullptr;      ///< see PhaseScope
  std::atomic<const char*> operation = nullptr;  ///< name of the collective that the host is in
  std::atomic<int64_t> collectives = 0;          ///< number of collectives begun
  std::atomic<bool> threw_loss = false;          ///< a PeerLostError reports the loss
  std::mutex notice_mutex;                       ///< protects the following two members
  std::string stop_notice;                       ///< see Communicator::set_stop_notice
  std::string failure_hint;                      ///< see Communicator::set_failure_hint
  std::unique_ptr<PeerWatch> watch;              ///< null for a world of one without a stop descriptor
};

/// "evaluation, all-reduce"; either part may be missing.
std::string place_of(const char* phase, const char* operation);

/// " during evaluation, all-reduce"; either part may be missing, and the result is "" if both are.
std::string during(const char* phase, const char* operation);

/// The state of a running connect(), for the thread that waits for it.
struct ConnectProgress {
  std::atomic<const char*> waits_for = "an answer from rank 0's store";
  /// The others are connected to this process; its watch informs them if it is asked to stop.
  std::atomic<bool> is_watched = false;
};

/// One rank among the processes, or threads, that share a store.
struct Membership {
  Ranks ranks = {};
  at::Device device = at::kCPU;
  ConnectOptions options = {};
  bool is_process = true;  ///< not a thread: its watch may end the process if others are lost
  ConnectProgress* progress = nullptr;
};
std::unique_ptr<Communicator::Connection> connect_over(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const Membership& member);

/// From now on the process ends without static destructors: they would run beside threads in c10d, NCCL or
/// Gloo that may never end.
void end_without_destructors();

/// Whether another process may have caused c10d's error: not in a world of one, and never if the device
/// failed or memory ran out.
bool may_come_from_peers(const std::exception& error, int size);

/// The readable part of c10d's message: its first line, without the call stack. If NCCL names a cause further
/// down ("Duplicate GPU detected : .."), that cause comes first.
std::string readable_part(const std::exception& error);

}  // namespace sdp
