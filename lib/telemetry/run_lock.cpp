#include "telemetry/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "io/descriptor.h"
#include "io/file.h"
#include "spec/error.h"
#include "telemetry/run_folder.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Id of a file that names no owner: it is being written, or damaged.
constexpr const char* kUnreadable = "unreadable";

/// A lock file and its content.
struct LockFile {
  fs::path path;
  std::string text;
  std::optional<RunOwner> owner;

  std::string id() const { return owner ? owner->id : kUnreadable; }
  /// The file whose creation gives the right to replace this one.
  fs::path claim() const { return RunFolder{path.parent_path()}.lock().string() + "." + id(); }
};

/// Reads a small file into `text`. Returns 0 or an errno value.
int try_read(const fs::path& path, std::string& text) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.number() < 0) return errno;
  std::array<char, 4096> part{};
  text.clear();
  for (;;) {
    const ssize_t got = read(file.number(), part.data(), part.size());
    if (got == 0) return 0;
    if (got > 0) text.append(part.data(), static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) return errno;
  }
}

/// std::nullopt if the file does not exist. The file is opened on every call, because NFS clients check for
/// changes only on opening. A file that another host has just replaced may be stale on the first call.
std::optional<std::string> read_file(const fs::path& path) {
  std::string text;
  int error = ESTALE;
  for (int attempt = 0; attempt < 3 && error == ESTALE; ++attempt)
    error = try_read(path, text);
  if (error == ENOENT) return std::nullopt;
  if (error != 0) throw_io_error("read", path, error);
  return text;
}

void write_at(int descriptor, const fs::path& path, size_t offset, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = pwrite(descriptor, text.data(), text.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_io_error("write", path, errno);
    offset += static_cast<size_t>(written);
    text.remove_prefix(static_cast<size_t>(written));
  }
}

/// Creates a file exclusively and returns its descriptor; -1 if the file exists.
int create_exclusively(const fs::path& path, std::string_view text) {
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.number() < 0 && errno == EEXIST) return -1;
  if (file.number() < 0) throw_io_error("create", path, errno);
  try {
    write_at(file.number(), path, 0, text);
    if (fsync(file.number()) != 0) throw_io_error("write", path, errno);
  } catch (...) {
    unlink(path.c_str());
    throw;
  }
  return file.release();
}

/// While a file is open, as the owner's lock file is, an NFS client may cache for up to a minute which file
/// its name refers to. Opening the folder makes the client ask the server again.
void refresh_names(const fs::path& folder) {
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/// run.lock and its replacements; the last one is the owner's. Empty if the folder is not locked.
std::vector<LockFile> read_chain(const fs::path& folder) {
  refresh_names(folder);
  std::vector<LockFile> chain;
  fs::path path = RunFolder{folder}.lock();
  while (const std::optional<std::string> text = read_file(path)) {
    chain.push_back({.path = path, .text = *text, .owner = parse_lock_text(*text)});
    path = chain.back().claim();
    for (const LockFile& file : chain)
      if (file.path == path) return chain;  // an unreadable file claims another unreadable one
  }
  return chain;
}

bool is_owner(const std::vector<LockFile>& chain, const RunOwner& self) {
  return !chain.empty() && chain.back().id() == self.id;
}

/// Whether `later` is `earlier` with one more file, which has that id.
bool extends(const std::vector<LockFile>& later, const std::vector<LockFile>& earlier,
             const std::string& id) {
  if (later.size() != earlier.size() + 1 || later.back().id() != id) return false;
  for (size_t i = 0; i < earlier.size(); ++i)
    if (later[i].id() != earlier[i].id()) return false;
  return true;
}

/// Gives the end of a chain whose owner is gone a new owner. Returns its descriptor, or -1 if another process
/// was faster.
int replace(const fs::path& folder, const std::vector<LockFile>& chain, const RunOwner& self) {
  const fs::path claim = chain.back().claim();
  Descriptor file(create_exclusively(claim, lock_text(self, 0)));
  if (file.number() < 0) return -1;
  if (!extends(read_chain(folder), chain, self.id)) {
    unlink(claim.c_str());  // that lock no longer exists
    return -1;
  }
  // From the end of the chain on: a file may still be renamed by a process that claimed it earlier and was
  // taken for gone. It then renames our file.
  fs::path from = claim;
  for (auto to = chain.rbegin(); to != chain.rend(); ++to) {
    rename(from.c_str(), to->path.c_str());  // fails if such a process was faster
    from = to->path;
  }
  const std::vector<LockFile> result = read_chain(folder);
  return result.size() == 1 && is_owner(result, self) ? file.release() : -1;
}

std::string name_of(const std::optional<RunOwner>& owner) {
  return owner ? describe(*owner) : "an unknown owner";
}

[[noreturn]] void refuse(const fs::path& folder, const RunOwner& owner, const RunOwner& self) {
  std::string advice = "Wait for that run, stop it, or set another name.";
  if (!owner.job.empty() && owner.job == self.job)
    advice =
        "Both processes belong to this job, and each was started as a run of its own. Give every run its own "
        "name; for one run of several processes, start them with a launcher that sets RANK and WORLD_SIZE.";
  throw UsageError(
      fmt::format("the run folder {} is in use by {}. {}", folder.string(), describe(owner), advice));
}

/// Returns the descriptor of the lock file.
int lock(const fs::path& folder, const RunOwner& self, const OnLockNotice& notice, const LockTimes& times) {
  LockWatch watch(folder, times, self);
  std::string told_of;  // id of the lock that `notice` was called for
  for (;;) {
    const std::vector<LockFile> chain = read_chain(folder);
    if (chain.empty()) {
      const int descriptor = create_exclusively(RunFolder{folder}.lock(), lock_text(self, 0));
      if (descriptor >= 0) return descriptor;
      continue;
    }
    const LockFile& last = chain.back();
    const LockWatch::State state = watch.judge(last.owner, last.text);
    if (state == LockWatch::State::kHeld) refuse(folder, *last.owner, self);
    if (state == LockWatch::State::kSilent) {
      if (told_of != last.id())
        notice(fmt::format("the run folder {} is locked by {}; waiting up to {} s for its heartbeat",
                           folder.string(), name_of(last.owner),
                           std::chrono::ceil<std::chrono::seconds>(times.silence).count()));
      told_of = last.id();
      std::this_thread::sleep_for(times.poll);
      continue;
    }
    const int descriptor = replace(folder, chain, self);
    if (descriptor < 0) continue;
    notice(fmt::format("the run folder {} was locked by {}, which is gone; this run takes over the lock",
                       folder.string(), name_of(last.owner)));
    return descriptor;
  }
}

/// Blocks all signals in this thread, and in threads that it starts, during its lifetime.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

RunLock::RunLock(fs::path folder, RunOwner owner, bool removes)
    : folder_(std::move(folder)), owner_(std::move(owner)), removes_(removes) {}

std::unique_ptr<RunLock> RunLock::acquire(const fs::path& folder, const OnLockNotice& notice,
                                          const LockTimes& times, const RunOwner& self) {
  std::unique_ptr<RunLock> result(new RunLock(folder, self, /*removes=*/true));
  result->descriptor_ = lock(folder, self, notice, times);
  result->start_heartbeat(times);
  return result;
}

std::unique_ptr<RunLock> RunLock::acquire_for_child(const fs::path& folder, const OnLockNotice& notice) {
  std::unique_ptr<RunLock> result(new RunLock(folder, this_process(), /*removes=*/true));
  result->descriptor_ = lock(folder, result->owner_, notice, {});
  return result;
}

std::unique_ptr<RunLock> RunLock::inherit(const fs::path& folder, const LockTimes& times) {
  RunOwner self = this_process();
  const std::vector<LockFile> chain = read_chain(folder);
  const std::optional<RunOwner> parent = chain.empty() ? std::nullopt : chain.back().owner;
  if (!parent || parent->machine != self.machine || parent->pid != getppid())
    throw UsageError(
        fmt::format("the run folder {} is not locked by the process that started this one, but by {}",
                    folder.string(), chain.empty() ? "nobody" : name_of(parent)));
  self.id = parent->id;
  std::unique_ptr<RunLock> result(new RunLock(folder, self, /*removes=*/false));
  const fs::path& path = chain.back().path;
  result->descriptor_ = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (result->descriptor_ < 0) throw_io_error("open", path, errno);
  const std::string text = lock_text(self, 0);
  write_at(result->descriptor_, path, 0, text);
  if (ftruncate(result->descriptor_, static_cast<off_t>(text.size())) != 0)
    throw_io_error("write", path, errno);
  result->start_heartbeat(times);
  return result;
}

RunLock::~RunLock() {
  if (heartbeat_.joinable()) {
    {
      const std::scoped_lock guard(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    heartbeat_.join();
  }
  if (descriptor_ < 0) return;
  close(descriptor_);  // close before removing: NFS renames a file that is removed while open
  try {
    if (removes_) remove();
  } catch (const std::exception&) {
    // The next run will find that this process is gone.
  }
}

/// Replaces the lock as any other process would, so that a process that is about to replace it keeps its
/// lock.
void RunLock::remove() const {
  const std::vector<LockFile> chain = read_chain(folder_);
  if (chain.size() != 1 || !is_owner(chain, owner_)) return;
  RunOwner remover = this_process();
  const fs::path claim = chain.back().claim();
  const int created = create_exclusively(claim, lock_text(remover, 0));
  if (created < 0) return;
  close(created);
  if (extends(read_chain(folder_), chain, remover.id)) unlink(chain.back().path.c_str());
  unlink(claim.c_str());
}

void RunLock::check() const {
  const std::vector<LockFile> chain = read_chain(folder_);
  if (is_owner(chain, owner_)) return;
  throw UsageError(fmt::format(
      "the run folder {} is no longer locked by this run, but by {}. This run ends; its work since the "
      "last "
      "checkpoint is lost. The run was suspended for long or cut off from the file system, or the lock "
      "file was removed.",
      folder_.string(), chain.empty() ? "nobody" : name_of(chain.back().owner)));
}

void RunLock::start_heartbeat(const LockTimes& times) {
  const SignalsBlocked blocked;
  silence_ = times.silence;
  heartbeat_ = std::thread([this, interval = times.heartbeat] { beat(interval); });
}

void RunLock::beat(std::chrono::milliseconds interval) {
  std::unique_lock guard(mutex_);
  for (int64_t count = 1; !changed_.wait_for(guard, interval, [this] { return ends_; }); ++count) {
    const std::string text = heartbeat_text(count);
    if (trying_since_.load() == Clock::time_point::max()) trying_since_ = Clock::now();
    // The file belongs to this process, whatever its name is now. Writing may fail, or not return (is_late).
    const ssize_t written =
        pwrite(descriptor_, text.data(), text.size(), static_cast<off_t>(heartbeat_offset()));
    if (written == static_cast<ssize_t>(text.size()) && fsync(descriptor_) == 0)
      trying_since_ = Clock::time_point::max();
  }
}

LockWatch::LockWatch(fs::path folder, const LockTimes& times, RunOwner self)
    : folder_(std::move(folder)), times_(times), self_(std::move(self)) {}

LockWatch::State LockWatch::look() {
  const std::vector<LockFile> chain = read_chain(folder_);
  if (!chain.empty()) return judge(chain.back().owner, chain.back().text);
  owner_.reset();
  text_.reset();
  return State::kFree;
}

LockWatch::State LockWatch::judge(const std::optional<RunOwner>& owner, const std::string& text) {
  const Clock::time_point now = Clock::now();
  const bool is_same_lock = owner && owner_ && owner->id == owner_->id;
  const bool has_changed = text != text_;
  owner_ = owner;
  text_ = text;
  const OwnerState state = owner ? state_of(*owner, self_) : OwnerState::kUnknown;
  if (state != OwnerState::kUnknown) return state == OwnerState::kRunning ? State::kHeld : State::kFree;
  if (has_changed) {
    changed_at_ = now;
    is_heard_ = is_same_lock;
  }
  if (now - changed_at_ >= times_.silence) return State::kFree;
  return is_heard_ ? State::kHeld : State::kSilent;
}

std::optional<RunOwner> lock_owner(const fs::path& folder) {
  const std::vector<LockFile> chain = read_chain(folder);
  return chain.empty() ? std::nullopt : chain.back().owner;
}

}  // namespace sdp
