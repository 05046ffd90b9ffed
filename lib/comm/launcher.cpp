#include "comm/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <system_error>

#include "comm/cores.h"
#include "comm/ranks.h"
#include "io/file.h"
#include "process/copy.h"
#include "process/signals.h"
#include "spec/error.h"

namespace sdp {
namespace {

using Clock = AwaitedSignals::Clock;
constexpr std::chrono::seconds kGrace{5};

/// The file through which the ranks meet. It is a file in memory that they inherit, so it needs no folder and
/// disappears with the last process, however the processes end.
Descriptor make_rendezvous_file() {
  Descriptor file(memfd_create("sdp-train rendezvous", /*flags=*/0));
  if (!file.is_open())
    throw std::system_error(errno, std::generic_category(), "cannot create a file in memory (memfd_create)");
  return file;
}

/// The last lines of a file, at most 20, ignoring its first `begin_bytes`; none if the file cannot be read.
std::deque<std::string> last_lines(const std::filesystem::path& path, std::uintmax_t begin_bytes) {
  constexpr size_t kMostLines = 20;
  std::deque<std::string> lines;
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(begin_bytes));
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kMostLines) lines.pop_front();
  }
  return lines;
}

struct Child {
  int rank = 0;
  pid_t pid = -1;
  bool running = false;
  bool was_terminated = false;   ///< the launcher sent SIGTERM after another process ended
  int status = 0;                ///< from waitpid
  std::filesystem::path log;     ///< its output file; rank 0 has none
  std::uintmax_t log_begin = 0;  ///< size of that file before this run

  bool killed() const { return WIFSIGNALED(status); }
  int exit_code() const { return killed() ? static_cast<int>(ExitCode::kPeerLost) : WEXITSTATUS(status); }
  bool stopped() const { return exit_code() == static_cast<int>(ExitCode::kPreempted); }
  bool failed() const { return exit_code() != static_cast<int>(ExitCode::kOk) && !stopped(); }
  /// Whether it failed for a reason of its own, not because another process was lost.
  bool is_cause() const {
    return failed() && !was_terminated && (killed() || exit_code() != static_cast<int>(ExitCode::kPeerLost));
  }
};

constexpr const char* kWaitPolicy = "OMP_WAIT_POLICY";

std::vector<std::string> environment_of(int rank, int processes, int rendezvous_file, bool is_busy) {
  Environment environment = current_environment();
  environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(processes);
  environment[kRendezvousFileVariable] = fmt::format("/proc/self/fd/{}", rendezvous_file);
  // OpenMP's threads spin while they wait for each other. On free cores this is fastest; on busy ones it
  // takes the cores from those they wait for.
  if (is_busy) environment.emplace(kWaitPolicy, "passive");
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment)
    entries.push_back(fmt::format("{}={}", name, value));
  return entries;
}

Descriptor open_log(Child& child, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / fmt::format("rank-{}.txt", child.rank);
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file.is_open())
    throw UsageError(fmt::format("Cannot write the log of rank {}, {}: {}. {}", child.rank, path.string(),
                                 std::strerror(errno), advice_for(errno)));
  child.log_begin = std::filesystem::file_size(path);
  child.log = path;
  return file;
}

/// The processes of one launch. The destructor kills those that are still running.
class Group {
 public:
  Group(int processes, const std::filesystem::path& log_folder, const AwaitedSignals& signals)
      : signals_(signals), log_folder_(log_folder), children_(static_cast<size_t>(processes)) {}

  ~Group() {
    for (const Child& child : children_) {
      if (!child.running) continue;
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    std::error_code ignored;
    for (const Child& child : children_)
      if (!child.log.empty() && std::filesystem::is_empty(child.log, ignored))
        std::filesystem::remove(child.log, ignored);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void start(const std::vector<std::string>& arguments) {
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      child.rank = static_cast<int>(rank);
      const Descriptor output = rank > 0 ? open_log(child, log_folder_) : Descriptor();
      child.pid = start_copy({.arguments = arguments,
                              .environment = environment_of(child.rank, static_cast<int>(children_.size()),
                                                            rendezvous_.number(), is_busy_),
                              .output = output.number(),
                              .signal_mask = signals_.mask_before()});
      child.running = true;
    }
  }

  /// Waits for all, passing signals on, and returns the exit code.
  int wait() {
    while (running()) {
      const std::optional<int> signal = signals_.wait(deadline_);
      if (signal && *signal != SIGCHLD) send(*signal);
      reap();
      if (deadline_ && Clock::now() >= *deadline_ && running()) terminate_remaining();
    }
    return report();
  }

 private:
  bool running() const {
    return std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.running; });
  }

  /// Passes a signal on. The first one sets no deadline, because the processes may be saving a checkpoint; a
  /// second one ends them at once, unless they are suspended.
  void send(int signal) {
    const Clock::time_point now = Clock::now();
    if (!passed_on_) passed_on_ = now;
    if (now - *passed_on_ > kSameRequest && !deadline_) deadline_ = now + kGrace;
    for (const Child& child : children_)
      if (child.running) kill(child.pid, signal);
  }

  void reap() {
    for (Child& child : children_) {
      if (!child.running || waitpid(child.pid, &child.status, WNOHANG) != child.pid) continue;
      child.running = false;
      if (child.failed()) failed_.push_back(&child);
      // The process alone received a signal. If it had not yet met the others, they still wait for it.
      const bool stopped_alone = child.stopped() && !passed_on_;
      if ((child.failed() || stopped_alone) && !deadline_) deadline_ = Clock::now() + kGrace;
    }
  }

  /// The grace period is over: sends SIGTERM, the next time SIGKILL.
  void terminate_remaining() {
    for (Child& child : children_) {
      if (!child.running) continue;
      if (!child.was_terminated)
        std::fprintf(stderr, "sdp-train: rank %d still runs %d s after it was to end; terminating it\n",
                     child.rank, static_cast<int>(kGrace.count()));
      kill(child.pid, child.was_terminated ? SIGKILL : SIGTERM);
      child.was_terminated = true;
    }
    deadline_ = Clock::now() + kGrace;
  }

  int report() const {
    if (failed_.empty()) {
      const bool preempted = std::any_of(children_.begin(), children_.end(),
                                         [](const Child& child) { return child.exit_code() != 0; });
      return static_cast<int>(preempted ? ExitCode::kPreempted : ExitCode::kOk);
    }
    const auto cause =
        std::find_if(failed_.begin(), failed_.end(), [](const Child* child) { return child->is_cause(); });
    const Child& blamed = cause == failed_.end() ? *failed_.front() : **cause;
    for (const Child* child : failed_)
      if (child == &blamed || (child->killed() && child->is_cause())) describe_end(*child);
    show_log(blamed);
    return blamed.exit_code();
  }

  static void describe_end(const Child& child) {
    if (child.killed())
      std::fprintf(stderr, "sdp-train: rank %d was killed by signal %d (%s)\n", child.rank,
                   WTERMSIG(child.status), strsignal(WTERMSIG(child.status)));
    else
      std::fprintf(stderr, "sdp-train: rank %d ended with exit code %d\n", child.rank, child.exit_code());
  }

  void show_log(const Child& child) const {
    if (child.rank == 0) return;
    const std::deque<std::string> lines = last_lines(child.log, child.log_begin);
    if (lines.empty()) return;
    std::fprintf(stderr, "sdp-train: last lines of rank %d (%s):\n", child.rank, child.log.c_str());
    for (const std::string& line : lines)
      std::fprintf(stderr, "  %s\n", line.c_str());
  }

  const AwaitedSignals& signals_;
  std::filesystem::path log_folder_;
  const Descriptor rendezvous_ = make_rendezvous_file();
  const bool is_busy_ = std::getenv(kWaitPolicy) == nullptr && cores_are_busy();
  std::vector<Child> children_;
  std::vector<const Child*> failed_;  ///< in the order in which they failed
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::time_point> passed_on_;  ///< when the first signal was passed on to all
};

}  // namespace

int launch(int processes, const std::vector<std::string>& arguments,
           const std::filesystem::path& log_folder) {
  const AwaitedSignals signals;
  Group group(processes, log_folder, signals);
  group.start(arguments);
  return group.wait();
}

int default_processes(int64_t workers, int64_t replicas, int available) {
  if (workers * replicas <= available) return static_cast<int>(workers * replicas);
  for (int64_t processes = std::min<int64_t>(workers, available); processes > 1; --processes)
    if (workers % processes == 0) return static_cast<int>(processes);
  return 1;
}

void ignore_sigpipe() {
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace sdp
