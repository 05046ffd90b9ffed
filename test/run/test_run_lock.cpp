#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "catch.h"
#include "run/run_lock.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;
using std::chrono::milliseconds;

namespace {

constexpr LockTimes kFast = {.heartbeat = milliseconds(20), .silence = milliseconds(300)};
constexpr LockTimes kPatient = {.heartbeat = milliseconds(20), .silence = std::chrono::hours(1)};
/// No heartbeat during a test.
constexpr LockTimes kSilent = {.heartbeat = std::chrono::hours(1), .silence = milliseconds(100)};

/// A folder and its lock files; `more` is the end of a name.
struct Folder : TempFolder {
  fs::path lock(const std::string& more = "") const { return path() / ("run.lock" + more); }
  void leave(const RunOwner& owner, const std::string& more = "") const {
    put(lock(more), lock_text(owner, 3));
  }
  std::unique_ptr<RunLock> acquire(const LockTimes& times = kFast,
                                   const RunOwner& self = this_process()) const {
    return RunLock::acquire(
        path(), [&](const std::string& notice) { notices.push_back(notice); }, times, self);
  }
  std::string refusal(const RunOwner& self = this_process()) const {
    return message_of<UsageError>([&] { acquire(kFast, self); });
  }
  std::optional<RunOwner> owner() const { return read_lock(path()).owner; }

  mutable std::vector<std::string> notices;
};

/// A process that has ended and been waited for.
RunOwner gone_process() {
  RunOwner owner = this_process();
  owner.pid = fork();
  if (owner.pid == 0) _exit(0);
  waitpid(static_cast<pid_t>(owner.pid), nullptr, 0);
  return owner;
}

RunOwner elsewhere() {
  RunOwner owner = this_process();
  owner.host = "far-away";
  owner.machine = "another";
  return owner;
}

RunOwner of_job(RunOwner owner, int64_t restarts) {
  owner.job = "77";
  owner.job_restarts = restarts;
  return owner;
}

}  // namespace

TEST_CASE("a lock file names its owner, and keeps its length with every heartbeat") {
  const Folder folder;
  const auto owner_in = [&](const std::string& text) {
    put(folder.lock(), text);
    return folder.owner();
  };
  RunOwner owner = of_job(this_process(), 2);
  CHECK(owner.pid == getpid());
  CHECK(owner_in(lock_text(owner, 5)) == owner);
  CHECK(lock_text(owner, 5) != lock_text(owner, 6));
  CHECK(lock_text(owner, 5).size() == lock_text(owner, 1000000).size());
  CHECK(this_process().id != owner.id);
  owner.id = "../elsewhere";  // it would be a part of a file's name
  for (const std::string& damaged :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"id\": 1}"), lock_text(owner, 5)})
    CHECK_FALSE(owner_in(damaged).has_value());
}

TEST_CASE("a locked folder is refused, naming the owner, until the lock is released") {
  const Folder folder;
  std::unique_ptr<RunLock> lock = folder.acquire();
  CHECK(folder.owner() == lock->owner());
  for (const std::string& part :
       {"process " + std::to_string(getpid()), lock->owner().host, lock->owner().since})
    CHECK(contains(folder.refusal(), part));
  lock->check();
  lock.reset();
  CHECK(fs::is_empty(folder.path()));
  CHECK_FALSE(folder.owner().has_value());
  folder.acquire()->check();
}

TEST_CASE("exactly one of several simultaneous starts gets the folder") {
  const bool was_left_behind = GENERATE(false, true);
  const RunOwner gone = gone_process();
  for (int round = 0; round < 8; ++round) {
    const TempFolder folder;
    if (was_left_behind) put(folder / "run.lock", lock_text(gone, 3));
    std::atomic<int> waiting{4}, owners{0}, refused{0};
    const auto compete = [&] {
      waiting -= 1;
      while (waiting > 0) {
      }
      try {
        const auto lock = RunLock::acquire(
            folder.path(), [](const auto&) {}, kFast);
        owners += 1;
        while (owners + refused < 4)
          std::this_thread::yield();
        lock->check();
      } catch (const UsageError&) {
        refused += 1;
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back(compete);
    }
    CHECK(owners == 1);
    CHECK(refused == 3);
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("the lock of a process that has ended is taken over at once, and no other") {
  RunOwner reused = this_process();  // another process has its process id now
  reused.process_start -= 1;
  for (const RunOwner& gone : {gone_process(), reused, of_job(elsewhere(), 0)}) {
    const Folder folder;
    folder.leave(gone);
    const RunOwner self = of_job(this_process(), 1);  // its job was restarted since
    const auto lock = folder.acquire(kPatient, self);
    lock->check();
    CHECK(contains(folder.notices.at(0), describe(gone)));
    CHECK(folder.owner()->id == self.id);
    for (const int64_t restarts : {0, 1})  // not restarted since
      CHECK(contains(folder.refusal(of_job(this_process(), restarts)), "SLURM job 77, restart 1"));
  }
}

TEST_CASE("an owner on another host counts as ended once its heartbeat stops") {
  const Folder folder;
  const RunOwner owner = elsewhere();
  SECTION("it continues") {
    const auto lock = folder.acquire(kFast, owner);
    CHECK(contains(folder.refusal(), "far-away"));
    lock->check();
  }
  SECTION("it has stopped") {
    folder.leave(owner);
    const auto begun = std::chrono::steady_clock::now();
    folder.acquire()->check();
    CHECK(std::chrono::steady_clock::now() - begun >= kFast.silence);
    REQUIRE(folder.notices.size() == 2);  // waits, takes over
    CHECK(contains(folder.notices[0], "far-away"));
  }
  SECTION("it returns after that") {
    const auto late = folder.acquire(kSilent, owner);
    const auto lock = folder.acquire();
    CHECK_THROWS_AS(late->check(), UsageError);
    lock->check();
  }
  SECTION("the owner is unknown") {
    put(folder.lock(), "");
    put(folder.lock(".1.unreadable"), "{");  // a start that took it over was killed early, too
    folder.acquire()->check();
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("an owner that cannot write its heartbeat knows before another host takes over") {
  const Folder folder, another;
  const auto owner = folder.acquire(kFast, elsewhere());
  std::this_thread::sleep_for(kFast.silence);
  CHECK_FALSE(owner->is_late());
  const auto silent = another.acquire(kSilent);
  std::this_thread::sleep_for(kSilent.silence);
  CHECK_FALSE(silent->is_late());  // has not tried to write one, like a process that was suspended
  break_writes(folder.lock());
  bool was_late = false;
  const auto lock = RunLock::acquire(
      folder.path(),
      [&](const std::string& notice) { was_late |= contains(notice, "takes over") && owner->is_late(); },
      kFast);
  CHECK(was_late);
  CHECK_THROWS_AS(owner->check(), UsageError);
}

TEST_CASE("an owner notices that its lock was taken, and does not touch the other owner's") {
  const Folder folder;
  auto lock = folder.acquire();
  fs::remove(folder.lock());
  CHECK_THROWS_AS(lock->check(), UsageError);
  const auto other = folder.acquire();
  CHECK(contains(message_of<UsageError>([&] { lock->check(); }), other->owner().since));
  lock.reset();
  other->check();
}

TEST_CASE("the last of a lock's files counts, whatever has been taken over before") {
  const Folder folder;
  const RunOwner first = gone_process(), second = gone_process(), third = this_process();
  folder.leave(first);
  folder.leave(second, ".1." + first.id);
  SECTION("its process has ended") {
    folder.acquire()->check();
    CHECK(fs::is_empty(folder.path()));
  }
  SECTION("its process is running") {
    folder.leave(third, ".2." + second.id);
    CHECK(contains(folder.refusal(), describe(third)));
    CHECK(read_lock(folder.path()).files.size() == 3);
  }
  SECTION("a file that takes over another lock is not one of them") {
    folder.leave(third, ".2." + first.id);
    folder.acquire()->check();
  }
}

TEST_CASE("a process that was slow to take over a lock leaves the next owner's alone") {
  const Folder folder;
  folder.leave(gone_process());
  const LockChain slow = read_lock(folder.path());
  CHECK(slow.state() == LockState::kFree);
  folder.acquire()->check();  // and releases it
  const auto owner = folder.acquire();
  put(slow.next, lock_text(this_process(), 0));
  owner->check();
  CHECK(folder.owner() == owner->owner());
}

TEST_CASE("a child becomes the owner of its parent's lock") {
  const Folder folder;
  auto parent = folder.acquire({.heartbeat = {}});
  const pid_t child = fork();
  if (child == 0) {
    const std::string error = message_of<std::exception>([&] { RunLock::inherit(folder.path())->check(); });
    const std::optional<RunOwner> owner = folder.owner();
    _exit(error.empty() && owner && owner->pid == getpid() && owner->id == parent->owner().id ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  parent->check();
  CHECK_THROWS_AS(RunLock::inherit(folder.path()), UsageError);  // this process has no such parent
  parent.reset();
  CHECK(fs::is_empty(folder.path()));
}
