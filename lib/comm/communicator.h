#pragma once

// Collectives over the world's processes by c10d's NCCL backend, for tensors on CUDA, or its Gloo backend,
// for tensors on either device. One communicator, no sub-groups.

#include <ATen/core/Tensor.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/backend_kind.h"
#include "comm/ranks.h"

namespace sdp {

/// Bytes that this process has sent to other processes, by kind of collective (W processes, k elements each).
/// all_to_all: exactly what the split sizes say. The others by the algorithm's least volume: all-reduce as a
/// ring, 2 (W-1)/W of the tensor; broadcast as a flat tree, W-1 times the tensor at the root, nothing
/// elsewhere; all-gather W-1 times the k own elements. What NCCL or Gloo really choose may differ.
struct Traffic {
  int64_t all_to_all_bytes = 0;
  int64_t all_reduce_bytes = 0;
  int64_t broadcast_bytes = 0;
  int64_t all_gather_bytes = 0;

  bool operator==(const Traffic&) const = default;
};

/// An exchange under way. Wait for it before its Communicator goes.
class Pending {
 public:
  Pending() = default;

  /// Gloo: returns when the exchange is complete; on CUDA the current stream then waits for the copy of what
  /// was received. NCCL: the current stream waits, the host does not. Does nothing the second time, or where
  /// nothing is under way. Throws PeerLostError.
  void wait();
  /// Whether there is something to wait for.
  bool is_under_way() const { return exchange_ != nullptr; }
  /// When the exchange was complete, once wait() has returned; none with NCCL, and where there was nothing.
  std::optional<std::chrono::steady_clock::time_point> completed_at() const;
  /// With NCCL how long the exchange took on the communicator's stream, once wait() has returned and the
  /// device is done with it; none where the backend does not report it.
  std::optional<double> duration_ms() const;

 private:
  friend class Communicator;
  struct Exchange;
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<std::atomic<Clock::rep>> completed_;  ///< ticks; 0: not yet
  std::function<double()> duration_ms_;                 ///< of the backend; NCCL, once waited for
};

/// The connection of one process to all others. Every collective is called by all ranks in the same order,
/// with contiguous tensors on device(), from one thread at a time. World of one without NCCL: plain copies.
///
/// Gloo exchanges tensors on CUDA through pinned host memory: c10d copies them there and back on streams of
/// its own, which wait for the caller's.
///
/// Every failure of communication is a PeerLostError that names the rank, the lost ones, the operation and
/// c10d's reason. With Gloo a process that ends is noticed at once, one that hangs after the time-out; it is
/// named then, and what it does, if it can still say so. NCCL notices either asynchronously: its collectives
/// throw at the next call after the failure was seen. Every process also watches the others (peer_watch.h):
/// when one has ended, and this one has not noticed or not left within 2 s as it computes, writes or waits
/// for its device, it says so on stderr and ends with exit code 4 (after connect(); threads, for tests, go
/// on). What is not communication goes through as it is: any error in a world of one, a failure of the device
/// and a lack of memory in every world. Tensors that do not fit the call are std::logic_error.
class Communicator {
 public:
  struct Connection;  ///< c10d's objects; defined in comm/connection.h

  explicit Communicator(std::unique_ptr<Connection> connection);
  /// Leaves the world. When it goes without an error, it waits up to 10 s for the others to do so too, which
  /// may still read from it; after an error of its own, up to half a second, as all may have the same.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  at::Device device() const;
  /// Whether collectives are work of the device, as NCCL's are: waiting for one makes the stream wait and not
  /// the host, and they fail late. With Gloo the host waits, on CUDA too.
  bool is_stream_ordered() const;

  /// Sends send_splits[r] elements to each rank r and receives recv_splits[r] from it, own rank included,
  /// both in order of rank. recv: [sum of recv_splits], send: [sum of send_splits], of one type. Zeros are
  /// fine; several exchanges may be under way. Neither tensor may be touched before wait().
  [[nodiscard]] Pending all_to_all(const at::Tensor& recv, const at::Tensor& send,
                                   const std::vector<int64_t>& recv_splits,
                                   const std::vector<int64_t>& send_splits);
  /// Sums over the ranks, in place, any shape.
  void all_reduce_sum(const at::Tensor& tensor);
  /// Overwrites the tensor, of any shape, with root's.
  void broadcast(const at::Tensor& tensor, int root);
  /// out: [W k], in: [k]; out holds the ranks' values in order of rank.
  void all_gather(const at::Tensor& out, const at::Tensor& in);
  /// Returns when every rank has called it; on CUDA the host waits for the device too, in a world of
  /// one.
  void barrier();
  /// The tensor on the host, which waits for the device. Throws PeerLostError where it may hold what a failed
  /// collective has left: NCCL fails late, and what is read then is nothing.
  at::Tensor to_host(const at::Tensor& tensor) const;
  /// Every rank's text, in order of rank. On CUDA the host waits.
  std::vector<std::string> all_gather_strings(const std::string& text);

  /// A stop point, which all processes pass in the same order, one before each training step: whether all of
  /// them stop here, as one was asked to (ConnectOptions). No collective; waits only where a stop was asked
  /// for and not all have answered yet, which each does at once, whatever it computes.
  bool stops_here();
  /// Between two stop points, any number of times on each process: whether all of them leave what they do
  /// between these points. From the first call to the next stop point no process may begin a collective.
  bool stops_within();

  /// This process goes because of an error of its own, which has been handled: the others need not wait for
  /// it. An exception that passes the Communicator says so by itself.
  void abandon() { abandoned_ = true; }

  Traffic traffic() const { return traffic_; }

 private:
  friend class Pending;
  friend class PhaseScope;
  friend std::unique_ptr<Communicator> connect_beside(const Communicator& met, const Ranks& ranks,
                                                      at::Device device, std::chrono::milliseconds timeout);
  /// Runs a c10d call, turning a failure that others may have caused into a PeerLostError.
  template <class Operation>
  auto guarded(const char* name, Operation&& operation) const;
  void check_tensor(const char* name, const at::Tensor& tensor) const;
  void leave();

  std::unique_ptr<Connection> connection_;
  Traffic traffic_;
  mutable bool failed_ = false;
  bool abandoned_ = false;
  int exceptions_at_start_;
};

/// What a process does while this exists, for messages about lost processes: "evaluation". They may nest.
/// `name` must outlive it.
class PhaseScope {
 public:
  PhaseScope(const Communicator& comm, const char* name);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const Communicator& comm_;
  const char* outer_;
};

struct ConnectOptions {
  BackendKind backend = BackendKind::kAuto;
  /// Limits meeting the others, and every collective: whoever does not come for so long counts as lost.
  std::chrono::milliseconds timeout = {};
  /// Tells this job from others that may meet at the same place. All processes of a job have the same.
  std::string job = {};
  /// Readable once this process is asked to stop; -1: nobody asks.
  int stop_descriptor = -1;
  /// The parent of this process, whose end asks for a stop as well; 0: any process may be.
  pid_t parent = 0;
};

/// Meets the other processes of `ranks`. On CPU it makes the process ignore SIGPIPE (see ignore_sigpipe). On
/// a single host rank 0 listens on, and Gloo uses, loopback only; else rank 0 listens on all interfaces, and
/// Gloo uses the one that GLOO_SOCKET_IFNAME names or that of the host's name.
///
/// A process that is asked to stop before the training of all has begun ends with exit code 75, and with it
/// all others, once they have met.
///
/// Throws PeerLostError when the others do not all come, saying what this process waited for; UsageError when
/// rank 0's port is taken, when another job meets there, when the device has no such backend, in this build
/// or at all, or when processes share a GPU and NCCL would refuse it (shared_devices.h).
std::unique_ptr<Communicator> connect(const Ranks& ranks, at::Device device, const ConnectOptions& options);

/// Collective. Throws UsageError on every rank when `value` (a hash) is not the same on all of them, naming
/// the ranks that differ from rank 0. `what` begins the sentence: "The experiment spec".
void check_same_everywhere(Communicator& comm, const std::string& what, const std::string& value);

}  // namespace sdp
