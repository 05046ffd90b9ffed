#include "comm/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "io/file.h"
#include "process/signals.h"
#include "spec/error.h"

namespace sdp {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

/// The host at which rank 0 serves the store. On a single host this is loopback whatever MASTER_ADDR says,
/// because rank 0 listens on loopback only, unless the launcher serves the store.
std::string store_host(const Ranks& ranks) {
  return ranks.single_host && !ranks.external_store ? kLoopback : ranks.master_address;
}

[[noreturn]] void port_is_taken(const Rendezvous& rendezvous, const std::string& reason) {
  throw UsageError("Rank 0 cannot listen on " + rendezvous.place() +
                   ": another program uses this port. Set MASTER_PORT to a free port on every process. (" +
                   reason + ")");
}

/// A socket that listens on rank 0's port, on loopback only. c10d would listen on all interfaces.
int listen_on_loopback(const Rendezvous& rendezvous) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(rendezvous.ranks.master_port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int reuse = 1;  // allows a port that an earlier run has just released
  if (descriptor >= 0 && setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) == 0 &&
      bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(descriptor, SOMAXCONN) == 0)
    return descriptor;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (error == EMFILE || error == ENFILE) throw std::runtime_error(std::strerror(error));
  if (error == EADDRINUSE) port_is_taken(rendezvous, std::strerror(error));
  throw UsageError("Rank 0 cannot listen on " + rendezvous.place() + ": " + std::strerror(error) +
                   ". On every process, set MASTER_PORT to a port that this user may listen on.");
}

/// If the folder's locks do not work, the processes meet over TCP.
void check_locks(Rendezvous& rendezvous) {
  const ConnectOptions& options = rendezvous.options;
  if (rendezvous.ranks.rank != 0) {
    if (!await_announcement(options.folder, std::chrono::steady_clock::now() + options.timeout))
      rendezvous.file.clear();
    return;
  }
  rendezvous.announcement = std::make_unique<Announcement>(options.folder);
  const std::string& problem = rendezvous.announcement->problem();
  if (problem.empty()) return;
  rendezvous.file.clear();
  write_line(fmt::format("warning: files in {} cannot be locked ({}), so the processes meet at {}",
                         options.folder, problem, rendezvous.place()));
}

void check_address(const Ranks& ranks) {
  try {
    check_resolves(ranks.master_address);
  } catch (const std::exception& error) {
    throw UsageError(
        fmt::format("Rank {}: {}, the host of rank 0 (ranks from {}). Set MASTER_ADDR to a name or "
                    "address that every host knows.",
                    ranks.rank, error.what(), ranks.source));
  }
}

Store open_tcp_store(const Rendezvous& rendezvous) {
  const Ranks& ranks = rendezvous.ranks;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(ranks.master_port);
  options.isServer = rendezvous.serves();
  options.numWorkers = static_cast<size_t>(ranks.world);
  options.waitWorkers = false;  // c10d would also count processes of another job
  options.timeout = rendezvous.options.timeout;
  if (options.isServer && ranks.single_host)
    options.masterListenFd = listen_on_loopback(rendezvous);  // c10d closes it
  Store store = c10::make_intrusive<c10d::TCPStore>(store_host(ranks), options);
  if (ranks.store_prefix.empty()) return store;
  return c10::make_intrusive<c10d::PrefixStore>(ranks.store_prefix, store);
}

Store open_store(Rendezvous& rendezvous) {
  const Ranks& ranks = rendezvous.ranks;
  if (!ranks.single_host || ranks.external_store) check_address(ranks);
  if (ranks.rendezvous_file.empty() && !rendezvous.file.empty()) check_locks(rendezvous);
  if (rendezvous.file.empty()) return open_tcp_store(rendezvous);
  Store store = c10::make_intrusive<c10d::FileStore>(rendezvous.file, ranks.world);
  store->setTimeout(rendezvous.options.timeout);
  return store;
}

/// Two jobs with the same port or run folder share one store, that of the first job.
void check_job(c10d::Store& store, const Rendezvous& rendezvous) {
  if (rendezvous.ranks.rank == 0) {
    store.set("job", std::vector<uint8_t>(rendezvous.options.job.begin(), rendezvous.options.job.end()));
    return;
  }
  const std::vector<uint8_t> found = store.get("job");
  const std::string job(found.begin(), found.end());
  if (job == rendezvous.options.job) return;
  throw UsageError(
      fmt::format("Rank {} has met another job at {}: that job is {}, this job is {}. Give each job its "
                  "own run folder, and its own MASTER_PORT on every process.",
                  rendezvous.ranks.rank, rendezvous.place(), job, rendezvous.options.job));
}

void check_rank(c10d::Store& store, const Rendezvous& rendezvous) {
  if (store.add(fmt::format("rank {}", rendezvous.ranks.rank), 1) == 1) return;
  throw UsageError(
      fmt::format("Two processes have rank {} among those that meet at {} (ranks from {}). If two jobs meet "
                  "there, give each job its own run folder and its own MASTER_PORT.",
                  rendezvous.ranks.rank, rendezvous.place(), rendezvous.ranks.source));
}

/// Throws UsageError on all processes if hosts have different numbers of processes. Call it before
/// check_rank: processes that assume different numbers per host may take the same rank.
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
      "subnetwork.placement: {} of {} processes are on hosts with a local world size of {}, like this "
      "process; the others are not (ranks from {}). Expected the same number of processes on every host: "
      "start the processes that way, or set subnetwork.placement to in_order.",
      like_this, ranks.world, ranks.local_world, ranks.source));
}

namespace fs = std::filesystem;
constexpr const char* kAnnouncement = ".rendezvous";
constexpr std::chrono::milliseconds kPoll{20};

/// Not open if there is no such file, or another user's.
Descriptor open_own(const fs::path& path) {
  Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open() && errno != ENOENT) throw_io_error("open", path, errno);
  struct stat status = {};
  return fstat(file.number(), &status) == 0 && status.st_uid == geteuid() ? std::move(file) : Descriptor();
}

Descriptor create(const fs::path& path) {
  fs::remove(path);
  Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600));
  if (!file.is_open()) throw_io_error("create", path, errno);
  return file;
}

/// Whether another open file holds the exclusive lock. c10d's FileStore uses locks of the same kind.
bool is_held(const Descriptor& file) {
  return flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

Rendezvous::Rendezvous(const Ranks& of_ranks, const ConnectOptions& with)
    : ranks(of_ranks), options(with), file(ranks.rendezvous_file) {
  if (file.empty() && ranks.shares_folder && !ranks.external_store && !options.folder.empty())
    file = store_file(options.folder);
}

bool Rendezvous::serves() const {
  return ranks.world > 1 && ranks.rank == 0 && file.empty() && !ranks.external_store;
}

std::string Rendezvous::place() const {
  if (!file.empty()) return file;
  return fmt::format("{}:{}", store_host(ranks), ranks.master_port);
}

c10::intrusive_ptr<c10d::Store> meet(Rendezvous& rendezvous) {
  Store store = open_store(rendezvous);
  check_job(*store, rendezvous);
  if (rendezvous.ranks.equal_hosts) check_equal_hosts(*store, rendezvous.ranks, rendezvous.serves());
  check_rank(*store, rendezvous);
  return store;
}

void check_port(const Rendezvous& rendezvous, const std::string& reason) {
  if (reason.find("EADDRINUSE") != std::string::npos) port_is_taken(rendezvous, reason);
}

fs::path store_file(const fs::path& folder) {
  return fs::absolute(folder / kAnnouncement) += ".store";
}

Announcement::Announcement(const fs::path& folder) try : path_(folder / kAnnouncement) {
  fs::create_directories(folder);
  if (is_held(open_own(path_)))
    throw UsageError(
        fmt::format("Another process is rank 0 of a job that meets through {}. Two jobs cannot "
                    "have one run folder: set another name for one of them.",
                    path_.string()));
  create(store_file(folder));
  const fs::path draft = fs::path(path_) += ".new";
  lock_ = create(draft);
  if (flock(lock_.number(), LOCK_EX | LOCK_NB) != 0)
    problem_ = std::strerror(errno);
  else if (!is_held(open_own(draft)))
    problem_ = "locks have no effect there";
  if (!problem_.empty() && write(lock_.number(), "-", 1) != 1) throw_io_error("write", draft, errno);
  fs::rename(draft, path_);
} catch (const fs::filesystem_error& error) {
  throw_io_error("write", error.path1(), error.code().value());
}

Announcement::~Announcement() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

bool await_announcement(const fs::path& folder, Deadline deadline) {
  const fs::path path = fs::absolute(folder / kAnnouncement);
  for (;;) {
    const Descriptor file = open_own(path);
    struct stat status = {};
    if (file.is_open() && fstat(file.number(), &status) == 0 && status.st_size > 0) return false;
    if (is_held(file)) return true;
    if (std::chrono::steady_clock::now() >= deadline)
      throw std::runtime_error(
          fmt::format("no running rank 0 has {}. All processes must see the same run folder, on a file "
                      "system whose locks "
                      "work between hosts",
                      path.string()));
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace sdp
