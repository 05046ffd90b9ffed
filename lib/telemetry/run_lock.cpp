#include "telemetry/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "process/condition_variable.h"
#include "process/identity.h"
#include "spec/error.h"
#include "telemetry/run_folder.h"
#include "text/json_text.h"

namespace sdp {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunOwner, id, host, machine, pid, process_start, job, job_restarts, since)

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// std::nullopt if the file does not exist. The file is opened on every call, because NFS clients check for
/// changes only on opening. A file that another host has just removed may be stale on the first call.
std::optional<std::string> read_file(const fs::path& path) {
  for (int attempt = 1;; ++attempt) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.number() < 0 && errno == ENOENT) return std::nullopt;
    std::array<char, 4096> text{};
    const ssize_t size = file.number() < 0 ? -1 : read(file.number(), text.data(), text.size());
    if (size >= 0) return std::string(text.data(), static_cast<size_t>(size));
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
  if (file.number() < 0 && errno == EEXIST) return Descriptor();
  if (file.number() < 0) throw_io_error("create", next, errno);
  if (!write_text(file.number(), lock_text(self, 0))) {
    const int error = errno;
    unlink(next.c_str());
    throw_io_error("write", next, error);
  }
  const LockChain chain = read_lock(folder);
  if (chain.is_held_by(self)) return file;
  if (std::count(chain.files.begin(), chain.files.end(), next) == 0) unlink(next.c_str());
  return Descriptor();
}

std::string name_of_owner(const LockChain& chain) {
  return chain.owner ? describe(*chain.owner) : chain.files.empty() ? "nobody" : "an unknown owner";
}

std::string refusal(const fs::path& folder, const RunOwner& owner, const RunOwner& self) {
  std::string_view advice = "Wait for that run, stop it, or set another name.";
  if (!owner.job.empty() && owner.job == self.job)
    advice =
        "Both processes belong to this job, and each was started as a run of its own. Give every run its own "
        "name; for one run of several processes, start them with a launcher that sets RANK and WORLD_SIZE.";
  return fmt::format("the run folder {} is in use by {}. {}", folder.string(), describe(owner), advice);
}

}  // namespace

RunOwner this_process() {
  return {.id = random_id(),
          .host = host_name(),
          .machine = machine_id(),
          .pid = getpid(),
          .process_start = process_start(),
          .job = environment_value("SLURM_JOB_ID"),
          .job_restarts = std::strtoll(environment_value("SLURM_RESTART_COUNT").c_str(), nullptr, 10),
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

std::optional<RunOwner> parse_lock_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    RunOwner owner = json;
    const bool is_id =
        !owner.id.empty() && owner.id.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (is_id && owner.pid > 0) return owner;
  } catch (const nlohmann::json::exception&) {
    // the same as a wrong id
  }
  return std::nullopt;
}

LockChain read_lock(const fs::path& folder) {
  // An NFS client may remember for up to a minute which names there are, unless the folder is opened.
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  LockChain chain{.files = {}, .next = RunFolder{folder}.lock()};
  while (const std::optional<std::string> text = read_file(chain.next)) {
    chain.files.push_back(chain.next);
    chain.text = *text;
    chain.owner = parse_lock_text(*text);
    chain.next = fmt::format("{}.{}.{}", chain.files.front().string(), chain.files.size(),
                             chain.owner ? chain.owner->id : "unreadable");
  }
  return chain;
}

LockWatch::State LockWatch::look() {
  const LockChain before = std::exchange(chain_, read_lock(folder_));
  const std::optional<RunOwner>& owner = chain_.owner;
  const Clock::time_point now = Clock::now();
  if (chain_.files != before.files || chain_.text != before.text) {
    changed_at_ = now;
    is_heard_ = owner && before.is_held_by(*owner);
  }
  // SLURM ends a job before it restarts it.
  const bool is_restarted =
      owner && !owner->job.empty() && owner->job == self_.job && owner->job_restarts < self_.job_restarts;
  if (chain_.files.empty() || is_restarted) return State::kFree;
  if (owner && owner->machine == self_.machine)
    return is_running(owner->pid, owner->process_start) ? State::kHeld : State::kFree;
  if (now - changed_at_ >= silence_) return State::kFree;
  return is_heard_ ? State::kHeld : State::kSilent;
}

RunLock::RunLock(fs::path folder, RunOwner owner, Descriptor file, bool is_inherited, const LockTimes& times)
    : folder_(std::move(folder)),
      owner_(std::move(owner)),
      file_(std::move(file)),
      is_inherited_(is_inherited),
      silence_(times.silence) {
  if (times.heartbeat.count() > 0)
    heartbeat_ = std::jthread(
        [this, interval = times.heartbeat](const std::stop_token& stop) { beat(stop, interval); });
}

std::unique_ptr<RunLock> RunLock::acquire(const fs::path& folder, const OnLockNotice& notice,
                                          const LockTimes& times, const RunOwner& self) {
  LockWatch watch(folder, times, self);
  for (fs::path told_of;;) {
    const LockWatch::State state = watch.look();
    const LockChain& chain = watch.chain();
    if (state == LockWatch::State::kHeld) throw UsageError(refusal(folder, *chain.owner, self));
    if (state == LockWatch::State::kSilent) {
      if (told_of != chain.next)
        notice(fmt::format("the run folder {} is locked by {}; waiting up to {} s for its heartbeat",
                           folder.string(), name_of_owner(chain),
                           std::chrono::ceil<std::chrono::seconds>(times.silence).count()));
      told_of = chain.next;
      std::this_thread::sleep_for(times.silence / 300.0);
    } else if (Descriptor file = take_over(folder, chain.next, self); file.number() >= 0) {
      std::unique_ptr<RunLock> lock(
          new RunLock(folder, self, std::move(file), /*is_inherited=*/false, times));
      if (!chain.files.empty())
        notice(fmt::format("the run folder {} was locked by {}, which is gone; this run takes over the lock",
                           folder.string(), name_of_owner(chain)));
      return lock;
    }
  }
}

std::unique_ptr<RunLock> RunLock::inherit(const fs::path& folder) {
  RunOwner self = this_process();
  const LockChain chain = read_lock(folder);
  if (!chain.owner || chain.owner->machine != self.machine || chain.owner->pid != getppid())
    throw UsageError(
        fmt::format("the run folder {} is not locked by the process that started this one, but by {}",
                    folder.string(), name_of_owner(chain)));
  self.id = chain.owner->id;
  const fs::path& path = chain.files.back();
  Descriptor file(open(path.c_str(), O_RDWR | O_TRUNC | O_NOFOLLOW | O_CLOEXEC));
  if (file.number() < 0 || !write_text(file.number(), lock_text(self, 0)))
    throw_io_error("write", path, errno);
  return std::unique_ptr<RunLock>(new RunLock(folder, self, std::move(file), /*is_inherited=*/true, {}));
}

RunLock::~RunLock() {
  heartbeat_.request_stop();
  if (heartbeat_.joinable()) heartbeat_.join();
  file_ = Descriptor();  // close before removing: NFS renames a file that is removed while open
  if (is_inherited_) return;
  try {
    const LockChain chain = read_lock(folder_);
    if (!chain.is_held_by(owner_)) return;
    if (take_over(folder_, chain.next, this_process()).number() < 0) return;
    for (const fs::path& file : chain.files)
      unlink(file.c_str());
    unlink(chain.next.c_str());
  } catch (const std::exception&) {
    // The next run will find that this process is gone.
  }
}

void RunLock::check() const {
  const LockChain chain = read_lock(folder_);
  if (chain.is_held_by(owner_)) return;
  throw UsageError(fmt::format(
      "the run folder {} is no longer locked by this run, but by {}. This run ends; its work since the last "
      "checkpoint is lost. The run was suspended for long or cut off from the file system, or the lock file "
      "was removed.",
      folder_.string(), name_of_owner(chain)));
}

void RunLock::beat(const std::stop_token& stop, std::chrono::milliseconds interval) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock guard(mutex);
  const auto is_stopped = [&] { return stop.stop_requested(); };
  for (int64_t count = 1; !changed.wait_for(guard, stop, interval, is_stopped); ++count) {
    if (trying_since_.load() == Clock::time_point::max()) trying_since_ = Clock::now();
    // Writing may fail, or not return (is_late).
    if (write_text(file_.number(), lock_text(owner_, count))) trying_since_ = Clock::time_point::max();
  }
}

}  // namespace sdp
