#pragma once

// How a Communicator comes to be. Internal to comm/.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>

#include "comm/communicator.h"

namespace sdp {

struct Communicator::Connection {
  int rank = 0;
  int size = 1;
  at::Device device = at::kCPU;
  c10::intrusive_ptr<c10d::Store> store;      ///< rendezvous; within the process for a world of one
  c10::intrusive_ptr<c10d::Backend> backend;  ///< null for a world of one on CPU
  bool serves_store = false;                  ///< the store ends with this process
};

/// Makes the backend of rank `rank` of `size` processes, or threads, that share `store`.
std::unique_ptr<Communicator::Connection> connect_over(c10::intrusive_ptr<c10d::Store> store, int rank,
                                                       int size, at::Device device,
                                                       std::chrono::milliseconds timeout, bool single_host);

/// Whether c10d's error may have its reason in another process: not in a world of one, and never where the
/// device failed or memory is short.
bool may_come_from_peers(const std::exception& error, int size);

/// The part of c10d's message that a user can read: its first line, without the call stack.
std::string first_line(const std::exception& error);

}  // namespace sdp
