#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "catch.h"
#include "run/run_folder.h"
#include "run/run_lock.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;
using std::chrono::milliseconds;

namespace {

constexpr LockTimes kFast = {.heartbeat = milliseconds(20), .silence = milliseconds(300)};
/// No heartbeat during a test.
constexpr LockTimes kSilent = {.heartbeat = std::chrono::hours(1), .silence = milliseconds(100)};

void no_notice(const std::string&) {}

std::unique_ptr<RunLock> acquire(const TempFolder& folder, const LockTimes& times = kFast,
                                 const RunOwner& self = this_process()) {
  return RunLock::acquire(folder.path(), no_notice, times, self);
}

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

}  // namespace

TEST_CASE("a lock file names its owner, and keeps its length with every heartbeat", "[run_lock]") {
  const TempFolder folder;
  const auto owner_in = [&](const std::string& text) {
    put(RunFolder{folder.path()}.lock(), text);
    return read_lock(folder.path()).owner;
  };
  RunOwner owner = this_process();
  owner.job = "77";
  owner.job_restarts = 2;
  CHECK(owner.pid == getpid());
  CHECK(owner_in(lock_text(owner, 5)) == owner);
  CHECK(lock_text(owner, 5) != lock_text(owner, 6));
  CHECK(lock_text(owner, 5).size() == lock_text(owner, 1000000).size());
  for (const char* damaged : {"", "{", "[]", "{\"id\": 1}"})
    CHECK_FALSE(owner_in(damaged).has_value());
  owner.id = "../elsewhere";  // it would be a part of a file's name
  CHECK_FALSE(owner_in(lock_text(owner, 5)).has_value());
  CHECK(this_process().id != owner.id);
}

TEST_CASE("a locked folder is refused, naming the owner, until the lock is released", "[run_lock]") {
  const TempFolder folder;
  std::unique_ptr<RunLock> lock = acquire(folder);
  lock->check();
  CHECK(read_lock(folder.path()).owner == lock->owner());
  const std::string refusal = message_of<UsageError>([&] { acquire(folder); });
  CHECK(contains(refusal, "process " + std::to_string(getpid())));
  CHECK(contains(refusal, lock->owner().host));
  CHECK(contains(refusal, lock->owner().since));
  lock->check();
  lock.reset();
  CHECK(fs::is_empty(folder.path()));
  CHECK_FALSE(read_lock(folder.path()).owner.has_value());
  acquire(folder)->check();
}

TEST_CASE("exactly one of several simultaneous starts gets the folder", "[run_lock]") {
  const bool was_left_behind = GENERATE(false, true);
  const RunOwner gone = gone_process();
  for (int round = 0; round < 8; ++round) {
    const TempFolder folder;
    if (was_left_behind) put(RunFolder{folder.path()}.lock(), lock_text(gone, 3));
    std::atomic<int> waiting{4};
    std::atomic<int> owners{0};
    std::atomic<int> refused{0};
    const auto compete = [&] {
      waiting -= 1;
      while (waiting > 0) {
      }
      try {
        const std::unique_ptr<RunLock> lock = acquire(folder);
        owners += 1;
        while (owners + refused < 4)
          std::this_thread::yield();
        lock->check();
      } catch (const UsageError&) {
        refused += 1;
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back(compete);
    for (std::thread& thread : threads)
      thread.join();
    CHECK(owners == 1);
    CHECK(refused == 3);
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("the lock of a process that has ended is taken over at once", "[run_lock]") {
  const TempFolder folder;
  RunOwner owner = gone_process();
  SECTION("no process has its process id") {}
  SECTION("another process has its process id now") {
    owner.pid = getpid();
    owner.process_start -= 1;
  }
  SECTION("its job was restarted since") {
    owner = elsewhere();
    owner.job = "77";
  }
  put(RunFolder{folder.path()}.lock(), lock_text(owner, 3));
  RunOwner self = this_process();
  self.job = "77";
  self.job_restarts = 1;
  std::string notice;
  const auto lock = RunLock::acquire(
      folder.path(), [&](const std::string& message) { notice = message; },
      {.heartbeat = milliseconds(20), .silence = std::chrono::hours(1)}, self);
  lock->check();
  CHECK(contains(notice, describe(owner)));
  CHECK(read_lock(folder.path()).owner->id == self.id);
}

TEST_CASE("a job that was not restarted since does not take over its own run", "[run_lock]") {
  const TempFolder folder;
  RunOwner owner = this_process();
  owner.job = "77";
  owner.job_restarts = 1;
  const auto lock = acquire(folder, kFast, owner);
  for (const int64_t restarts : {0, 1}) {
    RunOwner self = this_process();
    self.job = owner.job;
    self.job_restarts = restarts;
    CHECK(contains(message_of<UsageError>([&] { acquire(folder, kFast, self); }), "SLURM job 77, restart 1"));
  }
}

TEST_CASE("an owner on another host counts as ended once its heartbeat stops", "[run_lock]") {
  const TempFolder folder;
  const RunOwner owner = elsewhere();
  std::vector<std::string> notices;
  const auto start = [&] {
    return RunLock::acquire(
        folder.path(), [&](const std::string& message) { notices.push_back(message); }, kFast);
  };
  SECTION("it continues") {
    const auto lock = acquire(folder, kFast, owner);
    const std::string refusal = message_of<UsageError>(start);
    CHECK(contains(refusal, "far-away"));
    lock->check();
  }
  SECTION("it has stopped") {
    put(RunFolder{folder.path()}.lock(), lock_text(owner, 3));
    const auto begun = std::chrono::steady_clock::now();
    start()->check();
    CHECK(std::chrono::steady_clock::now() - begun >= kFast.silence);
    REQUIRE(notices.size() == 2);  // waits, takes over
    CHECK(contains(notices[0], "far-away"));
  }
  SECTION("it returns after that") {
    const auto late = acquire(folder, kSilent, owner);
    const auto lock = start();
    CHECK_THROWS_AS(late->check(), UsageError);
    lock->check();
  }
  SECTION("the owner is unknown") {
    const fs::path lock = RunFolder{folder.path()}.lock();
    put(lock, "");
    put(lock.string() + ".1.unreadable", "{");  // a start that took it over was killed early, too
    start()->check();
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("an owner that cannot write its heartbeat knows before another host takes over", "[run_lock]") {
  const TempFolder folder, another;
  const auto owner = acquire(folder, kFast, elsewhere());
  std::this_thread::sleep_for(kFast.silence);
  CHECK_FALSE(owner->is_late());
  const auto silent = acquire(another, kSilent);
  std::this_thread::sleep_for(kSilent.silence);
  CHECK_FALSE(silent->is_late());  // has not tried to write one, like a process that was suspended
  break_writes(RunFolder{folder.path()}.lock());
  std::atomic<bool> was_late = false;
  const auto lock = RunLock::acquire(
      folder.path(),
      [&](const std::string& message) {
        if (contains(message, "takes over")) was_late = owner->is_late();
      },
      kFast);
  CHECK(was_late);
  CHECK_THROWS_AS(owner->check(), UsageError);
}

TEST_CASE("an owner notices that its lock was taken, and does not touch the other owner's", "[run_lock]") {
  const TempFolder folder;
  auto lock = acquire(folder);
  fs::remove(RunFolder{folder.path()}.lock());
  CHECK_THROWS_AS(lock->check(), UsageError);
  const auto other = acquire(folder);
  CHECK(contains(message_of<UsageError>([&] { lock->check(); }), other->owner().since));
  lock.reset();
  other->check();
}

TEST_CASE("the last of a lock's files counts, whatever has been taken over before", "[run_lock]") {
  const TempFolder folder;
  const fs::path lock = RunFolder{folder.path()}.lock();
  const RunOwner first = gone_process(), second = gone_process(), third = this_process();
  put(lock, lock_text(first, 0));
  put(lock.string() + ".1." + first.id, lock_text(second, 0));
  SECTION("its process has ended") {
    acquire(folder)->check();
    CHECK(fs::is_empty(folder.path()));
  }
  SECTION("its process is running") {
    put(lock.string() + ".2." + second.id, lock_text(third, 0));
    CHECK(contains(message_of<UsageError>([&] { acquire(folder); }), describe(third)));
    CHECK(read_lock(folder.path()).files.size() == 3);
  }
  SECTION("a file that takes over another lock is not one of them") {
    put(lock.string() + ".2." + first.id, lock_text(third, 0));
    acquire(folder)->check();
  }
}

TEST_CASE("a process that was slow to take over a lock leaves the next owner's alone", "[run_lock]") {
  const TempFolder folder;
  const fs::path lock = RunFolder{folder.path()}.lock();
  const RunOwner gone = gone_process();
  put(lock, lock_text(gone, 0));
  const LockChain slow = read_lock(folder.path());
  CHECK(slow.state() == LockState::kFree);
  acquire(folder)->check();  // and releases it
  const auto owner = acquire(folder);
  put(slow.next, lock_text(this_process(), 0));
  owner->check();
  CHECK(read_lock(folder.path()).owner == owner->owner());
}

TEST_CASE("a child becomes the owner of its parent's lock", "[run_lock]") {
  const TempFolder folder;
  auto parent = acquire(folder, {.heartbeat = {}});
  const pid_t child = fork();
  if (child == 0) {
    const std::string error = message_of<std::exception>([&] { RunLock::inherit(folder.path())->check(); });
    const std::optional<RunOwner> owner = read_lock(folder.path()).owner;
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
