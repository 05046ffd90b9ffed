#pragma once

// How a Communicator comes to be. Internal to comm/.

#include <sys/types.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/peer_watch.h"

namespace sdp {

struct Communicator::Connection {
  int rank = 0;
  int size = 1;
  at::Device device = at::kCPU;
  c10::intrusive_ptr<c10d::Store> store;      ///< rendezvous; within the process for a world of one
  c10::intrusive_ptr<c10d::Backend> backend;  ///< null for a world of one without NCCL
  bool is_stream_ordered = false;             ///< see Communicator
  std::string refusal;                        ///< why the processes must not go on; all have the same
  bool serves_store = false;                  ///< the store ends with this process
  bool is_process = false;                    ///< ends with this process; a thread's does not
  /// Read by the watch's thread too:
  std::atomic<const char*> phase = nullptr;      ///< see PhaseScope
  std::atomic<const char*> operation = nullptr;  ///< of a collective that the host is in
  std::atomic<int64_t> collectives = 0;          ///< begun
  std::atomic<bool> threw_loss = false;          ///< a PeerLostError reports the loss
  std::unique_ptr<PeerWatch> watch;              ///< null for a world of one that nobody asks to stop
};

/// "evaluation, all-reduce", of which either may be missing.
std::string place_of(const char* phase, const char* operation);

/// " during evaluation, all-reduce", of which either may be missing, and all is then "".
std::string during(const char* phase, const char* operation);

/// How far connect() is, for a thread that waits for it.
struct ConnectProgress {
  std::atomic<const char*> waits_for = "an answer of rank 0's store";
  std::atomic<bool> is_watched =
      false;  ///< the others know this process, and its watch informs them when it stops
};

/// One rank's place among processes, or threads, that share a store.
struct Membership {
  int rank = 0;
  int size = 1;
  at::Device device = at::kCPU;
  BackendKind backend = BackendKind::kAuto;
  std::chrono::milliseconds timeout = {};
  bool single_host = true;
  std::string master_address = {};  ///< rank 0's host; used on several hosts only
  bool is_process = true;    ///< not a thread: it ends itself when others are lost and it does not return
  int stop_descriptor = -1;  ///< see ConnectOptions
  pid_t parent = 0;          ///< likewise
  ConnectProgress* progress = nullptr;
};
std::unique_ptr<Communicator::Connection> connect_over(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const Membership& member);

/// Whether c10d's error may have its reason in another process: not in a world of one, and never where the
/// device failed or memory is short.
bool may_come_from_peers(const std::exception& error, int size);

/// The part of c10d's message that a user can read: its first line, without the call stack, and before it the
/// cause that NCCL names below ("Duplicate GPU detected : ..").
std::string readable_part(const std::exception& error);

}  // namespace sdp
