#include "run/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "process/identity.h"
#include "run/run_folder.h"
#include "spec/error.h"
#include "spec/json_fields.h"

namespace sdp {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunOwner, id, host, machine, pid, process_start, job, job_restarts, since)

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// std::nullopt if the file does not exist. The file is opened on every call, because NFS clients check for
/// changes only on opening. A file that another host has just removed may be stale on the first call.
std::optional<std::string> read_file(const fs::path& path) {
  for (int attempt = 1;; ++attempt) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    std::array<char, 4096> text{};
    const ssize_t size = !file.is_open() ? -1 : read(file.number(), text.data(), text.size());
    if (size >= 0) return std::string(text.data(), static_cast<size_t>(size));
    if (errno == ENOENT) return std::nullopt;
    if (attempt == 3 || (errno != ESTALE && errno != EINTR)) throw_io_error("read", path, errno);
  }
}

/// Whether the file has this text now, on the disk; errno says why not.
bool write_text(int descriptor, const std::string& text) {
  errno = ENOSPC;  // if only a part is written
  return pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
         fsync(descriptor) == 0;
}

/// Makes `self` the owner. Returns its file, none if another process was faster.
Descriptor take_over(const fs::path& folder, const fs::path& next, const RunOwner& self) {
  Descriptor file(open(next.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.is_open() && errno == EEXIST) return Descriptor();
  if (!file.is_open()) throw_io_error("create", next, errno);
  if (!write_text(file.number(), lock_text(self, 0))) {
    const int error = errno;
    unlink(next.c_str());
    throw_io_error("write", next, error);
  }
  const LockChain lock = read_lock(folder);
  if (lock.is_held_by(self)) return file;
  if (std::count(lock.files.begin(), lock.files.end(), next) == 0) unlink(next.c_str());
  return Descriptor();
}

std::string name_of_owner(const LockChain& lock) {
  return lock.owner ? describe(*lock.owner) : lock.files.empty() ? "nobody" : "an unknown owner";
}

std::string refusal(const fs::path& folder, const RunOwner& owner, const RunOwner& self) {
  const bool is_one_job = !owner.job.empty() && owner.job == self.job;
  return fmt::format(
      "the run folder {} is in use by {}. {}", folder.string(), describe(owner),
      is_one_job ? "Both processes belong to this job, and each was started as a run of its own. Give "
                   "every run its own name; for one run of several processes, start them with a "
                   "launcher that sets RANK and WORLD_SIZE."
                 : "Wait for that run, stop it, or set another name.");
}

std::optional<RunOwner> parse(const std::string& text) try {
  const RunOwner owner = nlohmann::json::parse(text);
  const bool is_id = owner.id.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_id && !owner.id.empty() && owner.pid > 0 ? std::optional(owner) : std::nullopt;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

}  // namespace

RunOwner this_process() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  const char* const restarts = std::getenv("SLURM_RESTART_COUNT");
  return {.id = random_id(),
          .host = host_name(),
          .machine = machine_id(),
          .pid = getpid(),
          .process_start = process_start(),
          .job = job ? job : "",
          .job_restarts = restarts ? std::strtoll(restarts, nullptr, 10) : 0,
          .since = utc_now()};
}

std::string describe(const RunOwner& owner) {
  const std::string restart = owner.job_restarts > 0 ? fmt::format(", restart {}", owner.job_restarts) : "";
  const std::string job = owner.job.empty() ? "" : fmt::format(" (SLURM job {}{})", owner.job, restart);
  return fmt::format("process {} on host {}{}, since {}", owner.pid, owner.host, job, owner.since);
}

std::string lock_text(const RunOwner& owner, int64_t heartbeat) {
  nlohmann::json json = owner;
  json["heartbeat"] = fmt::format("{:012}", heartbeat);
  return json_text(json) + "\n";
}

LockState LockChain::state(const RunOwner& self, const LockTimes& times) const {
  // SLURM ends a job before it restarts it.
  const bool is_restarted =
      owner && !owner->job.empty() && owner->job == self.job && owner->job_restarts < self.job_restarts;
  if (files.empty() || is_restarted) return LockState::kFree;
  if (owner && owner->machine == self.machine)
    return is_running(owner->pid, owner->process_start) ? LockState::kHeld : LockState::kFree;
  if (Clock::now() - changed_at >= times.silence) return LockState::kFree;
  return is_heard ? LockState::kHeld : LockState::kSilent;
}

LockChain read_lock(const fs::path& folder, const LockChain& before) {
  // An NFS client may remember for up to a minute which names there are, unless the folder is opened.
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  LockChain lock{.next = RunFolder{folder}.lock()};
  while (const std::optional<std::string> text = read_file(lock.next)) {
    lock.files.push_back(lock.next);
    lock.text = *text;
    lock.owner = parse(*text);
    lock.next = fmt::format("{}.{}.{}", lock.files.front().string(), lock.files.size(),
                            lock.owner ? lock.owner->id : "unreadable");
  }
  const bool is_same = lock.files == before.files && lock.text == before.text;
  lock.changed_at = is_same ? before.changed_at : Clock::now();
  lock.is_heard = is_same ? before.is_heard : lock.owner && before.is_held_by(*lock.owner);
  return lock;
}

std::unique_ptr<RunLock> RunLock::acquire(const fs::path& folder,
                                          const std::function<void(const std::string& message)>& notice,
                                          const LockTimes& times, const RunOwner& self) {
  fs::path told_of;
  for (LockChain lock = read_lock(folder);; lock = read_lock(folder, lock)) {
    const LockState state = lock.state(self, times);
    if (state == LockState::kHeld) throw UsageError(refusal(folder, *lock.owner, self));
    if (state == LockState::kSilent) {
      if (std::exchange(told_of, lock.next) != lock.next)
        notice(fmt::format("the run folder {} is locked by {}; waiting up to {} s for its heartbeat",
                           folder.string(), name_of_owner(lock), times.silence.count() / 1000));
      std::this_thread::sleep_for(times.silence / 300.0);
    } else if (Descriptor file = take_over(folder, lock.next, self); file.is_open()) {
      std::unique_ptr<RunLock> held(new RunLock(folder, self, std::move(file), times));
      if (!lock.files.empty())
        notice(fmt::format("the run folder {} was locked by {}, which is gone; this run takes over the lock",
                           folder.string(), name_of_owner(lock)));
      return held;
    }
  }
}

std::unique_ptr<RunLock> RunLock::inherit(const fs::path& folder) {
  RunOwner self = this_process();
  const LockChain lock = read_lock(folder);
  if (!lock.owner || lock.owner->machine != self.machine || lock.owner->pid != getppid())
    throw UsageError(
        fmt::format("the run folder {} is not locked by the process that started this one, but by {}",
                    folder.string(), name_of_owner(lock)));
  self.id = lock.owner->id;
  const fs::path& path = lock.files.back();
  Descriptor file(open(path.c_str(), O_RDWR | O_TRUNC | O_NOFOLLOW | O_CLOEXEC));
  if (!file.is_open() || !write_text(file.number(), lock_text(self, 0))) throw_io_error("write", path, errno);
  return std::unique_ptr<RunLock>(new RunLock(folder, self, std::move(file), {}, /*is_inherited=*/true));
}

RunLock::~RunLock() {
  ends_.set_value();
  heartbeat_ = std::jthread();  // joins
  file_ = Descriptor();         // close before removing: NFS renames a file that is removed while open
  if (is_inherited_) return;
  try {
    const LockChain lock = read_lock(folder_);
    if (!lock.is_held_by(owner_) || !take_over(folder_, lock.next, this_process()).is_open()) return;
    for (const fs::path& file : read_lock(folder_).files)
      unlink(file.c_str());
  } catch (const std::exception&) {
    // The next run will find that this process is gone.
  }
}

void RunLock::check() const {
  const LockChain lock = read_lock(folder_);
  if (lock.is_held_by(owner_)) return;
  throw UsageError(fmt::format(
      "the run folder {} is no longer locked by this run, but by {}. This run ends; its work since the last "
      "checkpoint is lost. The run was suspended for long or cut off from the file system, or the lock file "
      "was removed.",
      folder_.string(), name_of_owner(lock)));
}

void RunLock::write_heartbeats() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  const std::future<void> end = ends_.get_future();
  for (int64_t count = 1; end.wait_for(times_.heartbeat) == std::future_status::timeout; ++count) {
    if (late_after_.load() == kNever) late_after_ = Clock::now() + times_.silence / 2;
    if (write_text(file_.number(), lock_text(owner_, count))) late_after_ = kNever;
  }
}

}  // namespace sdp
