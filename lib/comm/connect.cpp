#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAGuard.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "comm/connection.h"
#include "comm/launcher.h"
#include "spec/error.h"

namespace sdp {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
constexpr const char* kLoopback = "127.0.0.1";

/// The host at which rank 0 serves the store. On a single host that is loopback whatever MASTER_ADDR says,
/// as nothing else is listened on, except where the launcher serves it.
std::string store_host(const Ranks& ranks) {
  return ranks.single_host && !ranks.external_store ? kLoopback : ranks.master_address;
}

std::string store_address(const Ranks& ranks) {
  return store_host(ranks) + ":" + std::to_string(ranks.master_port);
}

[[noreturn]] void port_is_taken(const Ranks& ranks, const std::string& reason) {
  throw UsageError("Rank 0 cannot listen on " + store_address(ranks) +
                   ": another program uses this port. Set MASTER_PORT to a free one on every process. (" +
                   reason + ")");
}

/// A socket that listens on rank 0's port for this host only. c10d itself listens on all interfaces.
int listen_on_loopback(const Ranks& ranks) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(ranks.master_port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int reuse = 1;  // a port that an earlier run has just left
  if (descriptor >= 0 && setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) == 0 &&
      bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(descriptor, SOMAXCONN) == 0)
    return descriptor;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (error == EADDRINUSE) port_is_taken(ranks, std::strerror(error));
  throw UsageError("Rank 0 cannot listen on " + store_address(ranks) + ": " + std::strerror(error) +
                   ". Set MASTER_PORT to a port that this user may listen on, on every process.");
}

/// Where the processes exchange their addresses.
Store meet(const Ranks& ranks, bool serves, std::chrono::milliseconds timeout) {
  if (!ranks.rendezvous_file.empty()) {
    Store store = c10::make_intrusive<c10d::FileStore>(ranks.rendezvous_file, ranks.world);
    store->setTimeout(timeout);
    return store;
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(ranks.master_port);
  options.isServer = serves;
  options.numWorkers = static_cast<size_t>(ranks.world);
  options.timeout = timeout;
  if (serves && ranks.single_host) options.masterListenFd = listen_on_loopback(ranks);  // c10d closes it
  Store store = c10::make_intrusive<c10d::TCPStore>(store_host(ranks), options);
  if (ranks.store_prefix.empty()) return store;
  return c10::make_intrusive<c10d::PrefixStore>(ranks.store_prefix, store);
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const Store& store, int rank, int size,
                                            std::chrono::milliseconds timeout, bool single_host) {
  using Gloo = c10d::ProcessGroupGloo;
  c10::intrusive_ptr<Gloo::Options> options;
  if (single_host) {
    options = Gloo::Options::create(timeout);
    options->devices.push_back(Gloo::createDeviceForHostname(kLoopback));
  } else {
    options = Gloo::Options::create_default(timeout);
  }
  return c10::make_intrusive<Gloo>(store, rank, size, options);
}

#ifdef USE_C10D_NCCL
c10::intrusive_ptr<c10d::Backend> make_nccl(const Store& store, int rank, int size, at::Device device,
                                            std::chrono::milliseconds timeout) {
  // "Clean up only": a failed communicator is aborted and the next call throws, instead of c10d's watchdog
  // ending the process with SIGABRT. c10d offers no other way to say so than its environment variable.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", std::to_string(c10d::CleanUpOnly).c_str(), /*overwrite=*/0);
  const c10::cuda::CUDAGuard guard(device);
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}
#endif

/// Ends this process, which has not noticed by itself that others were lost: it computes, writes, waits for a
/// device that waits for them, or is in an exchange of Gloo's that does not see that its connection broke.
[[noreturn]] void end_process(const Communicator::Connection& connection,
                              const std::vector<Departure>& departures) {
  if (connection.threw_loss) _exit(static_cast<int>(ExitCode::kPeerLost));
  const Loss loss = describe_loss(departures);
  const std::string text =
      fmt::format("error: Rank {} lost {}{}. {} Nothing else noticed within {} s; this process ends now.\n",
                  connection.rank, loss.who, during(connection.phase, connection.operation), loss.why,
                  PeerWatch::kPatience.count());
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(static_cast<int>(ExitCode::kPeerLost));
}

std::unique_ptr<PeerWatch> make_watch(Communicator::Connection& connection, const Membership& member) {
  PeerWatch::Options options = {.rank = member.rank, .size = member.size, .timeout = member.timeout};
  if (!member.single_host) options.master = member.master_address;
  if (member.is_process)
    options.unnoticed = [&connection](const std::vector<Departure>& departures) {
      end_process(connection, departures);
    };
  return std::make_unique<PeerWatch>(*connection.store, std::move(options));
}

/// Throws UsageError on all processes where hosts have different numbers of them. Before anything that goes
/// by rank: processes that count on different numbers may both take the same one.
void check_equal_hosts(c10d::Store& store, const Ranks& ranks, bool serves) {
  const auto count = [&](const std::string& name, bool wait) {
    const std::string all = "all " + name;
    if (store.add(name, 1) == ranks.world) store.set(all, "yes");
    if (wait) store.wait({all});
  };
  const std::string alike = fmt::format("on hosts of {}", ranks.local_world);
  store.add(alike, 1);
  count("counted", /*wait=*/true);
  const int64_t like_this = store.add(alike, 0);
  if (like_this == ranks.world) return;
  count("refused", /*wait=*/serves);  // the store ends with the process that serves it
  throw UsageError(fmt::format(
      "subnetwork.placement: {} of {} processes are on hosts of {}, as this one, the others are not ({}). "
      "Expected as many on every host: start them so, or set in_order.",
      like_this, ranks.world, ranks.local_world, ranks.source));
}

[[noreturn]] void cannot_connect(const Ranks& ranks, std::chrono::milliseconds timeout,
                                 const std::exception& error) {
  const std::string reason = first_line(error);
  if (reason.find("EADDRINUSE") != std::string::npos) port_is_taken(ranks, reason);
  const std::string where = ranks.rendezvous_file.empty() ? store_address(ranks) : ranks.rendezvous_file;
  throw PeerLostError("Rank " + std::to_string(ranks.rank) + " could not meet the other " +
                      std::to_string(ranks.world - 1) + " processes at " + where + " within " +
                      std::to_string(timeout.count() / 1000) + " s (ranks from " + ranks.source +
                      "): " + reason);
}

}  // namespace

std::string during(const char* phase, const char* operation) {
  if (!phase && !operation) return "";
  return fmt::format(" during {}{}{}", phase ? phase : "", phase && operation ? ", " : "",
                     operation ? operation : "");
}

bool may_come_from_peers(const std::exception& error, int size) {
  return size > 1 && !dynamic_cast<const c10::AcceleratorError*>(&error) &&
         !dynamic_cast<const c10::OutOfMemoryError*>(&error) && !dynamic_cast<const std::bad_alloc*>(&error);
}

std::string first_line(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error ? c10_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::unique_ptr<Communicator::Connection> connect_over(Store store, const Membership& member) {
  auto connection = std::make_unique<Communicator::Connection>();
  connection->rank = member.rank;
  connection->size = member.size;
  connection->device = member.device;
  connection->is_process = member.is_process;
  connection->store = c10::make_intrusive<c10d::PrefixStore>("sdp", store);
  // Before the backend: a process that is killed closes its descriptors in order, and is seen to end before
  // the others' collectives fail.
  if (member.size > 1) connection->watch = make_watch(*connection, member);
  const Store backend_store = c10::make_intrusive<c10d::PrefixStore>("backend", store);
  if (member.device.is_cuda()) {
#ifdef USE_C10D_NCCL
    connection->backend = make_nccl(backend_store, member.rank, member.size, member.device, member.timeout);
#else
    throw UsageError(
        "This build of sdp-train has no NCCL, which training on CUDA needs. Build it against a "
        "LibTorch with CUDA, or set train.device to cpu.");
#endif
  } else if (member.size > 1) {
    connection->backend =
        make_gloo(backend_store, member.rank, member.size, member.timeout, member.single_host);
  }
  return connection;
}

std::unique_ptr<Communicator> connect(const Ranks& ranks, at::Device device,
                                      std::chrono::milliseconds timeout) {
  if (ranks.rank < 0 || ranks.rank >= ranks.world) throw std::logic_error("connect: rank outside the world");
  ignore_sigpipe();
  const bool serves =
      ranks.world > 1 && ranks.rank == 0 && ranks.rendezvous_file.empty() && !ranks.external_store;
  try {
    Store store =
        ranks.world == 1 ? Store(c10::make_intrusive<c10d::HashStore>()) : meet(ranks, serves, timeout);
    if (ranks.equal_hosts) check_equal_hosts(*store, ranks, serves);
    auto connection = connect_over(std::move(store), {.rank = ranks.rank,
                                                      .size = ranks.world,
                                                      .device = device,
                                                      .timeout = timeout,
                                                      .single_host = ranks.single_host,
                                                      .master_address = ranks.master_address});
    connection->serves_store = serves;
    return std::make_unique<Communicator>(std::move(connection));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!may_come_from_peers(error, ranks.world)) throw;
    cannot_connect(ranks, timeout, error);
  }
}

}  // namespace sdp
