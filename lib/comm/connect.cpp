#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "comm/connection.h"
#include "comm/launcher.h"
#include "comm/rendezvous.h"
#include "comm/shared_devices.h"
#include "io/file.h"
#include "process/signals.h"
#include "spec/error.h"

namespace sdp {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
/// At most the time that SLURM leaves between the signal and the kill, and that others would wait anyway.
constexpr std::chrono::milliseconds kAnswerTimeout{10'000};
/// Lets c10d's time-outs, where it has any, expire first: their messages say more.
constexpr std::chrono::seconds kSlack{2};

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
  // ending the process with SIGABRT. c10d offers this choice only through its environment variable.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", std::to_string(c10d::CleanUpOnly).c_str(), /*overwrite=*/0);
  // A device fault is an error of this process with its own exit code; the watchdog must not rethrow it.
  setenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0", /*overwrite=*/0);
  // After a timeout the watchdog aborts the communicator at once, without first waiting for a dump of c10d's
  // flight recorder, which is not used. It waits even if no dump is wanted.
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", /*overwrite=*/0);
  setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0", /*overwrite=*/0);
  // Measures how long collectives take (Pending::duration_ms).
  setenv("TORCH_NCCL_ENABLE_TIMING", "1", /*overwrite=*/0);
  const c10::cuda::CUDAGuard guard(device);
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}
#endif

bool uses_nccl(BackendKind kind, at::Device device) {
  return kind == BackendKind::kNccl || (kind == BackendKind::kAuto && device.is_cuda());
}

#ifdef USE_C10D_NCCL
DevicePlace place_of_device(at::Device device) {
  std::array<char, 32> bus_id = {};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device.index()));
  return {.host = nccl_host(), .device = bus_id.data()};
}
#endif

/// Ends this process because it has not noticed that others were lost: it computes, writes, waits for a
/// device that waits for the lost processes, or is in a Gloo exchange that does not notice its broken
/// connection.
[[noreturn]] void end_process(Communicator::Connection& connection,
                              const std::vector<Departure>& departures) {
  if (connection.threw_loss) _exit(static_cast<int>(ExitCode::kPeerLost));
  const ProcessLoss loss = describe_process_loss(departures);
  write_line(
      fmt::format("error: Rank {} lost {}{}. {} No collective reported this within {} s; this process ends.",
                  connection.rank, loss.who, during(connection.phase, connection.operation), loss.why,
                  PeerWatch::kPatience.count()));
  if (const std::lock_guard lock(connection.notice_mutex); !connection.failure_hint.empty())
    write_line(connection.failure_hint);
  _exit(static_cast<int>(ExitCode::kPeerLost));
}

/// Ends this process, which was asked to stop but cannot, because others do not report how far they are.
[[noreturn]] void end_unanswered(const Communicator::Connection& connection, const std::vector<int>& missing,
                                 std::chrono::milliseconds limit) {
  write_line(
      fmt::format("error: Rank {} was asked to stop{}, but {} did not answer within {} s (suspended, or the "
                  "host hangs). This process ends without saving a checkpoint; the previous one is kept.",
                  connection.rank, during(connection.phase, connection.operation), list_ranks(missing),
                  limit.count() / 1000));
  _exit(static_cast<int>(ExitCode::kPeerLost));
}

PeerWatch::Events events_of_process(Communicator::Connection& connection, std::chrono::milliseconds limit) {
  return {
      .unnoticed = [&connection](const auto& departures) { end_process(connection, departures); },
      .stopped_before_training =
          [&connection] {
            end_before_training(static_cast<int>(ExitCode::kPreempted), connection.rank == 0);
          },
      .stopping =
          [&connection] {
            const std::lock_guard lock(connection.notice_mutex);
            if (connection.rank == 0 && !connection.stop_notice.empty()) write_line(connection.stop_notice);
          },
      .unanswered = [&connection, limit](const auto& missing) { end_unanswered(connection, missing, limit); },
      .orphaned =
          [&connection] {
            write_line(
                fmt::format("warning: Rank {}: the process that started this one has ended; all ranks stop "
                            "as if they had received a signal",
                            connection.rank));
          }};
}

std::unique_ptr<PeerWatch> make_watch(Communicator::Connection& connection, const Membership& member) {
  const Ranks& ranks = member.ranks;
  const auto timeout = member.options.timeout;
  PeerWatch::Options options = {.rank = ranks.rank,
                                .size = ranks.world,
                                .timeout = timeout,
                                .stop_descriptor = member.options.stop_descriptor,
                                .parent = member.options.parent,
                                .answer_timeout = std::min(kAnswerTimeout, timeout)};
  if (!ranks.single_host) options.master = ranks.master_address;
  if (member.is_process) options.events = events_of_process(connection, options.answer_timeout);
  options.events.status = [&connection] {
    return ProcessStatus{connection.collectives, place_of(connection.phase, connection.operation)};
  };
  return std::make_unique<PeerWatch>(*connection.store, std::move(options));
}

/// An attempt to connect in a separate thread. Not all waits of c10d end: if a program accepts the connection
/// and never answers, c10d waits forever.
struct Attempt {
  ConnectProgress progress;
  Descriptor done{eventfd(0, EFD_CLOEXEC)};
  std::mutex mutex;  ///< protects the following members
  std::unique_ptr<Communicator::Connection> connection;
  std::exception_ptr error;
};

[[noreturn]] void cannot_connect(const Rendezvous& rendezvous, const std::string& reason) {
  const Ranks& ranks = rendezvous.ranks;
  std::string remedy;
  for (const int error : {EMFILE, ENFILE})
    if (reason.find(std::strerror(error)) != std::string::npos)
      remedy = fmt::format(". {}", advice_for(error));
  throw PeerLostError(fmt::format(
      "Rank {} could not connect to the other {} at {} within {} s (ranks from {}): {}", ranks.rank,
      ranks.world == 2 ? "process" : fmt::format("{} processes", ranks.world - 1), rendezvous.place(),
      rendezvous.options.timeout.count() / 1000, ranks.source, reason + remedy));
}

std::unique_ptr<Communicator::Connection> connect_now(const Ranks& ranks, at::Device device,
                                                      const ConnectOptions& options,
                                                      ConnectProgress* progress) {
  Rendezvous rendezvous(ranks, options);
  try {
    Store store = ranks.world == 1 ? Store(c10::make_intrusive<c10d::HashStore>()) : meet(rendezvous);
    auto connection =
        connect_over(store, {.ranks = ranks, .device = device, .options = options, .progress = progress});
    connection->serves_store = rendezvous.serves();
    connection->announced = std::move(rendezvous.announcement);
    return connection;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!may_come_from_peers(error, ranks.world)) throw;
    const std::string reason = readable_part(error);
    check_port(rendezvous, reason);
    cannot_connect(rendezvous, reason);
  }
}

/// If the processes must not continue, all ranks throw and leave together, so that none counts as lost.
std::unique_ptr<Communicator> joined(std::unique_ptr<Communicator::Connection> connection) {
  const std::string refusal = connection->refusal;
  auto comm = std::make_unique<Communicator>(std::move(connection));
  if (!refusal.empty()) throw UsageError(refusal);
  return comm;
}

/// Returns when the attempt is over, or at the deadline. Says soon what this process waits for, if that comes
/// from variables, which may be left over from another program.
void wait_for(const Attempt& attempt, const Rendezvous& rendezvous, int stop_descriptor, Deadline deadline) {
  bool is_silent = rendezvous.ranks.rendezvous_file.empty() && rendezvous.ranks.local_rank == 0;
  std::array<pollfd, 2> polled = {pollfd{.fd = attempt.done.number(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = stop_descriptor, .events = POLLIN, .revents = 0}};
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    poll(polled.data(), polled.size(),
         static_cast<int>(std::clamp<int64_t>(left, 0, is_silent ? 2'000 : 60'000)));
    if (polled[0].revents != 0 || left <= 0) return;
    if (std::exchange(is_silent, false))
      write_line(fmt::format(
          "Rank {} waits at {} for the others of {} processes, as many as {} says. If its variables are "
          "left over from another program, unset them.",
          rendezvous.ranks.rank, rendezvous.place(), rendezvous.ranks.world, rendezvous.ranks.source));
    if (polled[1].revents == 0) continue;
    // The watch informs the others. Before the watch exists, no process has met this one.
    if (!attempt.progress.is_watched)
      end_before_training(static_cast<int>(ExitCode::kPreempted), /*says=*/true);
    polled[1].fd = -1;
  }
}

}  // namespace

void end_without_destructors() {
  // Of what runs in exit(), that which was registered last comes first.
  on_exit(
      [](int code, void*) {
        std::fflush(nullptr);
        _exit(code);
      },
      nullptr);
}

std::string place_of(const char* phase, const char* operation) {
  return fmt::format("{}{}{}", phase ? phase : "", phase && operation ? ", " : "",
                     operation ? operation : "");
}

std::string during(const char* phase, const char* operation) {
  const std::string place = place_of(phase, operation);
  return place.empty() ? "" : " during " + place;
}

bool may_come_from_peers(const std::exception& error, int size) {
  return size > 1 && !dynamic_cast<const c10::AcceleratorError*>(&error) &&
         !dynamic_cast<const c10::OutOfMemoryError*>(&error) && !dynamic_cast<const std::bad_alloc*>(&error);
}

std::string readable_part(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error ? c10_error->what_without_backtrace() : error.what();
  const auto line_from = [&](size_t begin) { return text.substr(begin, text.find('\n', begin) - begin); };
  constexpr std::string_view kLast = "Last error:\n";
  const size_t last = text.find(kLast);
  const std::string cause = last == std::string::npos ? "" : line_from(last + kLast.size());
  return cause.empty() ? line_from(0) : fmt::format("{} ({})", cause, line_from(0));
}

std::unique_ptr<Communicator::Connection> connect_over(const Store& store, const Membership& member) {
  const Ranks& ranks = member.ranks;
  const ConnectOptions& options = member.options;
  const auto wait_for_next = [&](const char* what) {
    if (member.progress) member.progress->waits_for = what;
  };
  auto connection = std::make_unique<Communicator::Connection>();
  connection->rank = ranks.rank;
  connection->size = ranks.world;
  connection->device = member.device;
  connection->is_process = member.is_process;
  connection->store = c10::make_intrusive<c10d::PrefixStore>("sdp", store);
  // Create the watch before the backend: a killed process closes its descriptors in ascending order, so the
  // others see that it has ended before their collectives fail.
  wait_for_next("the other processes' addresses and connections");
  if (ranks.world > 1 || options.stop_descriptor >= 0) connection->watch = make_watch(*connection, member);
  if (member.progress) member.progress->is_watched = connection->watch != nullptr;
  connection->is_stream_ordered = uses_nccl(options.backend, member.device);
  const Store backend_store = c10::make_intrusive<c10d::PrefixStore>("backend", store);
  if (connection->is_stream_ordered) {
#ifdef USE_C10D_NCCL
    wait_for_next("the other processes' devices");
    connection->refusal = refuse_shared_devices(
        gather_places(*connection->store, ranks.rank, ranks.world, place_of_device(member.device)));
    wait_for_next("the connections of the NCCL backend");
    connection->backend = make_nccl(backend_store, ranks.rank, ranks.world, member.device, options.timeout);
#else
    throw UsageError(
        "This build of sdp-train has no NCCL. Build it against a LibTorch with CUDA and NCCL, or set "
        "train.backend to gloo.");
#endif
  } else if (ranks.world > 1) {
    wait_for_next("the connections of the Gloo backend");
    connection->backend =
        make_gloo(backend_store, ranks.rank, ranks.world, options.timeout, ranks.single_host);
  }
  return connection;
}

std::unique_ptr<Communicator> connect(const Ranks& ranks, at::Device device, const ConnectOptions& options) {
  if (ranks.rank < 0 || ranks.rank >= ranks.world) throw std::logic_error("connect: rank outside the world");
  if (options.backend == BackendKind::kNccl && !device.is_cuda())
    throw UsageError(
        "train.backend is nccl, but no CUDA device is visible, so this process computes on the CPU. Make a "
        "GPU visible, or set train.backend to gloo or auto.");
  ignore_sigpipe();
  if (ranks.world == 1) return joined(connect_now(ranks, device, options, /*progress=*/nullptr));
  const auto attempt = std::make_shared<Attempt>();
  if (!attempt->done.is_open()) cannot_connect({ranks, options}, std::strerror(errno));
  std::thread thread([attempt, ranks, device, options] {
    std::unique_ptr<Communicator::Connection> connection;
    std::exception_ptr error;
    try {
      connection = connect_now(ranks, device, options, &attempt->progress);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(attempt->mutex);
    attempt->connection = std::move(connection);
    attempt->error = error;
    eventfd_write(attempt->done.number(), 1);
  });
  const Rendezvous rendezvous(ranks, options);
  wait_for(*attempt, rendezvous, options.stop_descriptor,
           std::chrono::steady_clock::now() + options.timeout + kSlack);
  if (std::unique_lock lock(attempt->mutex); attempt->error || attempt->connection) {
    lock.unlock();
    thread.join();
    if (attempt->error) std::rethrow_exception(attempt->error);
    return joined(std::move(attempt->connection));
  }
  end_without_destructors();
  thread.detach();
  cannot_connect(rendezvous,
                 fmt::format("it was waiting for {}{}", attempt->progress.waits_for.load(),
                             rendezvous.file.empty() ? ". If another program listens at this address, set "
                                                       "MASTER_PORT to a free port on every process"
                                                     : ""));
}

std::unique_ptr<Communicator> connect_beside(const Communicator& met, const Ranks& ranks, at::Device device,
                                             std::chrono::milliseconds timeout) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>("beside", met.connection_->store);
  try {
    Ranks own = ranks;
    own.rank = met.rank();
    own.world = met.size();
    return std::make_unique<Communicator>(connect_over(
        store, {.ranks = own, .device = device, .options = {.timeout = timeout}, .is_process = false}));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!may_come_from_peers(error, met.size())) throw;
    throw PeerLostError(fmt::format("Rank {} could not connect its device to the other ranks' devices: {}",
                                    met.rank(), readable_part(error)));
  }
}

}  // namespace sdp
