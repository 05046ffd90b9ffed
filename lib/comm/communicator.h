#pragma once

// Collectives over all processes, through c10d's NCCL backend (CUDA tensors) or its Gloo backend (CUDA or CPU
// tensors). There is one communicator and there are no sub-groups.

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

#include "comm/ranks.h"

namespace sdp {

/// Bytes that this process has sent to other processes, by kind of collective (W processes, k elements each).
///
/// all_to_all is exact: it follows from the split sizes. The others assume an algorithm: for all-reduce a
/// ring, which sends 2 (W-1)/W of the tensor; for broadcast a flat tree, in which the root sends the tensor
/// W-1 times and the others send nothing; for all-gather, each process sends its k elements W-1 times. The
/// algorithm that NCCL or Gloo chooses may send other amounts.
struct Traffic {
  int64_t all_to_all_bytes = 0;
  int64_t all_reduce_bytes = 0;
  int64_t broadcast_bytes = 0;
  int64_t all_gather_bytes = 0;

  bool operator==(const Traffic&) const = default;
};

/// An exchange in flight. Wait for it before its Communicator is destroyed.
class Pending {
 public:
  Pending() = default;

  /// Gloo: returns when the exchange is complete; on CUDA the current stream then waits until the received
  /// data has been copied to the device. NCCL: the current stream waits, the host does not. Does nothing if
  /// called again or if no exchange is in flight. Throws PeerLostError.
  void wait();
  /// Whether an exchange is in flight that has not been waited for.
  bool is_under_way() const { return exchange_ != nullptr; }
  /// When the exchange completed. Available once wait() has returned; none with NCCL, or if there was no
  /// exchange.
  std::optional<std::chrono::steady_clock::time_point> completed_at() const;
  /// With NCCL, how long the exchange took on the communicator's stream. Available once wait() has returned
  /// and the device has completed the exchange; none if the backend does not report it.
  std::optional<double> duration_ms() const;

 private:
  friend class Communicator;
  struct Exchange;
  using Clock = std::chrono::steady_clock;
  std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<std::atomic<Clock::rep>> completed_;  ///< ticks; 0: not yet
  std::function<double()> duration_ms_;                 ///< asks the backend; set by wait() with NCCL
};

/// The connection of one process to all others. All ranks call every collective in the same order, with
/// contiguous tensors on device(), from one thread at a time. In a world of one process without NCCL,
/// collectives are plain copies.
///
/// Gloo exchanges CUDA tensors through pinned host memory: c10d copies them there and back on its internal
/// streams, which wait for the caller's stream.
///
/// Every communication failure is reported as a PeerLostError that names this rank, the lost ranks, the
/// operation and c10d's reason. Gloo notices at once that a process has ended, and notices a process that
/// hangs after the time-out; the error then names that process and, if it still answers, what it is doing.
/// NCCL notices both asynchronously: its collectives throw at the next call after the failure was detected.
///
/// Every process also watches the others (peer_watch.h). If another process has ended and this one has
/// neither noticed nor ended within 2 s, because it computes, writes or waits for its device, it reports the
/// loss on stderr and ends with exit code 4. (This holds for processes that called connect(); the threads
/// that tests use as ranks continue.)
///
/// Other errors pass through unchanged: any error in a world of one, device failures and out-of-memory errors
/// in every world. Tensors that do not fit the call throw std::logic_error.
class Communicator {
 public:
  struct Connection;  ///< c10d's objects; defined in comm/connection.h

  explicit Communicator(std::unique_ptr<Connection> connection);
  /// Leaves the world. Without an error, it waits up to 10 s for the others to leave too, because they may
  /// still read from this process. After an error of this process, it waits up to half a second, because all
  /// processes may have the same error.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  at::Device device() const;
  /// Whether collectives run on the device, as NCCL's do: waiting for one makes the stream wait and not the
  /// host, and failures are reported late. With Gloo the host waits, also on CUDA.
  bool is_stream_ordered() const;

  /// Sends send_splits[r] elements to each rank r and receives recv_splits[r] elements from it, including
  /// this rank; both tensors are in order of rank. recv: [sum of recv_splits], send: [sum of send_splits], of
  /// one type. Splits may be zero, and several exchanges may be in flight. Do not access either tensor before
  /// wait().
  [[nodiscard]] Pending all_to_all(const at::Tensor& recv, const at::Tensor& send,
                                   const std::vector<int64_t>& recv_splits,
                                   const std::vector<int64_t>& send_splits);
  /// Sums a tensor of any shape over the ranks, in place.
  void all_reduce_sum(const at::Tensor& tensor);
  /// Overwrites a tensor of any shape with the root's tensor.
  void broadcast(const at::Tensor& tensor, int root);
  /// out: [W k], in: [k]; `out` receives the ranks' values in order of rank.
  void all_gather(const at::Tensor& out, const at::Tensor& in);
  /// Returns when every rank has called it. On CUDA the host also waits for the device, even in a world of
  /// one.
  void barrier();
  /// A barrier of hosts without a time limit, for what a process reads or waits for as long as it takes. Only
  /// a process that has ended is an error.
  void patient_barrier();
  /// Copies the tensor to the host; the host waits for the device. Throws PeerLostError if a failed
  /// collective may have left the tensor invalid: NCCL reports failures late, so the check follows the copy.
  at::Tensor to_host(const at::Tensor& tensor) const;
  /// Every rank's text, in order of rank. On CUDA the host waits for the device.
  std::vector<std::string> all_gather_strings(const std::string& text);

  /// A stop point. All processes pass the stop points in the same order, one before each training step.
  /// Returns whether all of them stop here because one was asked to (ConnectOptions). This is not a
  /// collective: it waits only after a request to stop, until all processes have answered, which each does at
  /// once whatever it is computing.
  bool stops_here();
  /// What rank 0 prints as soon as one of the processes is asked to stop, whatever it is computing.
  void set_stop_notice(const std::string& notice);
  /// What this process prints last if it ends because others were lost, unnoticed by its collectives.
  void set_failure_hint(const std::string& words);
  /// Between two stop points, each process may call this any number of times. Returns whether all processes
  /// abort their work between these two points. From the first call to the next stop point no process may
  /// begin a collective.
  bool stops_within();

  /// What this process is doing, "reduce, all-to-all"; may be empty. From any thread.
  std::string place() const;

  /// States that this process ends because of an error of its own that has already been handled, so that the
  /// others need not wait for it. Not needed if an exception propagates past the Communicator.
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

/// Names what this process is doing during the scope, for messages about lost processes ("evaluation").
/// Scopes may nest. `name` must outlive the scope.
class PhaseScope {
 public:
  PhaseScope(const Communicator& comm, const char* name);
  ~PhaseScope() { place_ = outer_; }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  friend class Communicator;
  PhaseScope(std::atomic<const char*>& place, const char* name)
      : place_(place), outer_(place.exchange(name)) {}

  std::atomic<const char*>& place_;
  const char* outer_;
};

struct ConnectOptions {
  BackendKind backend = BackendKind::kAuto;
  /// Time limit for meeting the others and for every collective. A process that is not there in time counts
  /// as lost.
  std::chrono::milliseconds timeout = {};
  /// Distinguishes this job from others that may meet at the same address. The same on all processes of a
  /// job.
  std::string job = {};
  /// Where the processes meet if they share it (Ranks); it may not exist yet. Empty: they meet over TCP.
  std::string folder = {};
  /// Becomes readable when this process is asked to stop; -1: stop requests are not expected.
  int stop_descriptor = -1;
  /// The parent of this process; if the parent ends, this process is asked to stop. 0: the parent is not
  /// watched.
  pid_t parent = 0;
};

/// Connects this process to the other processes of `ranks`. Makes the process ignore SIGPIPE (see
/// ignore_sigpipe). On a single host, rank 0 and Gloo use the loopback interface only. On several hosts, rank
/// 0 listens on all interfaces, and Gloo uses the interface that GLOO_SOCKET_IFNAME names or else the one of
/// the host's name.
///
/// If a process is asked to stop before all processes have begun training, it ends with exit code 75, and so
/// do all others once they have met.
///
/// Throws PeerLostError if some of the other processes do not come; the message says what this process was
/// waiting for. Throws UsageError if rank 0's port is taken, if another job meets there, if the backend does
/// not support the device or is not part of this build, or if processes share a GPU, which NCCL refuses
/// (shared_devices.h).
std::unique_ptr<Communicator> connect(const Ranks& ranks, at::Device device, const ConnectOptions& options);

/// Collective. Throws UsageError on every rank if `value` (a hash) is not the same on all of them, naming the
/// ranks that differ from rank 0. `what` begins the sentence, for example "The experiment spec".
void check_same_everywhere(Communicator& comm, const std::string& what, const std::string& value);

/// Connects the same ranks a second time, on `device`, through the rendezvous of `met`, which must outlive
/// the result. A failure in one of the two communicators does not affect the other, so the processes can
/// still report failures to each other. Collective; call it at most once for each `met`, with the `ranks`
/// that `met` was connected with. If other ranks fail or leave, this rank gets a PeerLostError as usual, but
/// the watch does not end it.
std::unique_ptr<Communicator> connect_beside(const Communicator& met, const Ranks& ranks, at::Device device,
                                             std::chrono::milliseconds timeout);

}  // namespace sdp
