// Processes that end while others continue: which one is named, and how soon all have ended; and the
// launcher.

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <tuple>

#include "catch.h"
#include "comm/launcher.h"
#include "comm/peer_watch.h"
#include "helper_process.h"

namespace sdp {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ScratchFolder;
using Clock = std::chrono::steady_clock;
constexpr seconds kLimit{60};  // the timeout of the collectives is 300 s (comm_helper.cpp)

/// Ranks that were started by hand and have connected. Each reports whom it lost and during what, and whether
/// the exchange failed (": " and its message follow) or only the watch noticed (". " and why).
struct World {
  World(int size, const std::vector<std::string>& mode) : ranks(test::start_ranks(folder, size, mode)) {
    folder.await_ranks(size);
  }
  void send(int rank, int signal) const { kill(ranks[static_cast<size_t>(rank)]->pid(), signal); }
  int code(int rank) { return ranks[static_cast<size_t>(rank)]->wait(); }
  std::string console(int rank) const { return folder.read("console-" + std::to_string(rank)); }

  ScratchFolder folder;
  std::vector<std::unique_ptr<test::HelperProcess>> ranks;
};

/// The watches of a world of threads, which share the store. `change` changes a rank's other options.
std::vector<std::unique_ptr<PeerWatch>> watches(
    int size, const std::function<void(int rank, PeerWatch::Options&)>& change = {}) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto watch_of = [&](int rank) {
    PeerWatch::Options options = {.rank = rank, .size = size, .timeout = seconds(60)};
    if (change) change(rank, options);
    return std::make_unique<PeerWatch>(*store, std::move(options));
  };
  return test::in_parallel(size, watch_of);
}

/// A descriptor that becomes readable when somebody asks to stop.
struct Request {
  void ask() const { eventfd_write(descriptor.number(), 1); }
  Descriptor descriptor{eventfd(0, EFD_CLOEXEC)};
};

/// The number of stop points that each watch passes from now on until it stops, each at its own pace.
std::vector<int64_t> points_passed(const std::vector<std::unique_ptr<PeerWatch>>& world) {
  return test::in_parallel(static_cast<int>(world.size()), [&](int rank) {
    int64_t points = 0;
    while (!world[static_cast<size_t>(rank)]->stops_here())
      ++points;
    return points;
  });
}

}  // namespace

TEST_CASE("who is to blame, given how the others have left or where they are") {
  using D = Departure;
  using Departures = std::vector<D>;
  for (const auto& [departures, who] :
       {std::pair(Departures{D::kNone, D::kSilent, D::kNone}, "rank 1"),
        {{D::kPeerLost, D::kSilent, D::kPeerLost}, "rank 1"},
        {{D::kSilent, D::kNone, D::kError}, "ranks 0 and 2"},
        {{D::kSilent, D::kSilent, D::kError, D::kSilent}, "ranks 0, 1, 2 and 3"},
        {{D::kNone, D::kPeerLost, D::kFinished}, "the other processes"},
        {{}, "the other processes"}})
    CHECK(describe_process_loss(departures).who == who);
  CHECK_THAT(describe_process_loss({D::kNone, D::kSilent}).why,
             Contains("Rank 1 ended without notice") && !Contains("Rank 0"));
  CHECK_THAT(describe_process_loss({D::kError, D::kSilent}).why,
             Contains("Rank 1 ended without notice") && Contains("Rank 0 ended with an error"));

  using Where = std::vector<std::optional<ProcessStatus>>;
  const ProcessStatus here{7, "all-to-all"}, ahead{8, "all-to-all"}, late{6, "saving a checkpoint"};
  for (const auto& [statuses, rank, who, why] :
       {std::tuple(Where{here, {}, here}, 0, "rank 1", "Rank 1 does not answer"),
        {Where{{}, ahead, here, {}}, 2, "ranks 0 and 3", ""},
        // A rank that is behind may itself be waiting for a silent one.
        {Where{late, here, {}}, 1, "rank 2", "Rank 2"},
        {Where{late, here, ahead}, 1, "rank 0", "saving a checkpoint"},
        {Where{here, here}, 0, "the other processes", ""}}) {
    const ProcessLoss delay = describe_delay(statuses, rank);
    CHECK(delay.who == who);
    CHECK_THAT(delay.why, Contains(why));
  }
}

TEST_CASE("a request, or the end of the process that started a rank, stops all ranks at the same point") {
  const int asked = GENERATE(0, 1, 2);
  const bool is_orphan = GENERATE(false, true);
  const Request request;
  std::atomic<int> orphans = 0;
  const auto world = watches(3, [&](int rank, PeerWatch::Options& options) {
    options.events.orphaned = [&] { ++orphans; };
    if (rank != asked) return;
    options.stop_descriptor = request.descriptor.number();
    if (is_orphan) options.parent = getpid();  // no process is its own parent
  });
  for (const auto& watch : world)
    REQUIRE_FALSE(watch->stops_here());  // training has begun
  if (!is_orphan) request.ask();
  const std::vector<int64_t> points = points_passed(world);
  CHECK(points == std::vector<int64_t>(3, points.front()));
  CHECK(orphans == is_orphan);
}

TEST_CASE("a request before all have begun training ends all, once") {
  const bool is_in_training = GENERATE(false, true);  // the rank that is asked; the others are not
  const Request request;
  std::array<std::atomic<int>, 3> ended = {};
  const auto world = watches(3, [&](int rank, PeerWatch::Options& options) {
    if (rank == 1) options.stop_descriptor = request.descriptor.number();
    options.events.stopped_before_training = [&ended, rank] { ++ended[static_cast<size_t>(rank)]; };
  });
  if (is_in_training) REQUIRE_FALSE(world[1]->stops_here());
  request.ask();
  const auto all_ended = [&] {
    return std::all_of(ended.begin(), ended.end(), [](const auto& times) { return times > 0; });
  };
  test::eventually(kLimit, all_ended);
  for (const auto& times : ended)
    CHECK(times == 1);
}

TEST_CASE("a rank that hangs is named when it is asked where it is and when it should stop") {
  const Request request;
  std::promise<void> goes_on;
  const std::shared_future<void> until = goes_on.get_future().share();
  std::promise<std::vector<int>> unanswered;
  const auto world = watches(3, [&](int rank, PeerWatch::Options& options) {
    options.answer_timeout = seconds(1);
    options.events.status = [rank, until] {
      if (rank == 2) until.wait();  // as if it were stopped
      return ProcessStatus{10 + rank, "a phase whose name is longer than what fits into a message"};
    };
    if (rank == 0) {
      options.stop_descriptor = request.descriptor.number();
      options.events.unanswered = [&](const std::vector<int>& ranks) { unanswered.set_value(ranks); };
    }
  });
  const auto where = world[0]->ask_status(seconds(1));
  REQUIRE(where[0]);
  REQUIRE(where[1]);
  CHECK_FALSE(where[2]);
  CHECK(where[0]->collectives == 10);
  CHECK(where[1]->collectives == 11);
  CHECK(where[1]->place == "a phase whose name is longer than what fits in");
  REQUIRE_FALSE(world[0]->stops_here());
  request.ask();
  CHECK(unanswered.get_future().get() == std::vector<int>{2});
  CHECK_FALSE(world[0]->stops_here());  // it does not wait forever
  goes_on.set_value();
}

TEST_CASE("a rank that leaves with its own error is not ended by the consequences at the others") {
  std::array<std::atomic<int>, 2> unnoticed = {};
  const auto world = watches(2, [&](int rank, PeerWatch::Options& options) {
    options.events.unnoticed = [&unnoticed, rank](const auto&) { ++unnoticed[static_cast<size_t>(rank)]; };
  });
  world[0]->leave(Departure::kError);
  CHECK(test::eventually(kLimit, [&] { return unnoticed[1] == 1; }));  // it has reported that it lost rank 0
  std::this_thread::sleep_for(PeerWatch::kPatience + milliseconds(200));
  CHECK(unnoticed[0] == 0);
}

TEST_CASE("the ways of leaving are distinguished") {
  auto world = watches(5);
  world[1]->leave(Departure::kFinished);
  world[2]->leave(Departure::kPeerLost);
  world[3]->leave(Departure::kError);
  world[3]->leave(Departure::kFinished);  // too late
  for (const size_t gone : {1, 2, 3, 4})
    world[gone].reset();
  const std::vector<Departure> expected = {Departure::kNone, Departure::kFinished, Departure::kPeerLost,
                                           Departure::kError, Departure::kSilent};
  CHECK(test::eventually(kLimit, [&] { return world[0]->after_failure(seconds(1)) == expected; }));
}

TEST_CASE("ranks that end are named by all others, at once, whatever these do") {
  // Which ranks are killed, or else rank 1 ends with an error of its own; and whom the others lose during
  // what.
  struct Fault {
    std::vector<std::string> mode;
    std::vector<int> killed;
    std::string loss;
  };
  const Fault fault =
      GENERATE(Fault{{"exchange"}, {0}, "rank 0 during all-to-all"},  // 0 serves the store
               Fault{{"exchange"}, {0, 2}, "ranks 0 and 2 during all-to-all"},
               Fault{{"lone", "2", "sleep", "barrier"}, {1}, "rank 1 during the test"},
               Fault{{"lone", "2", "sleep", "patient"}, {1}, "rank 1 during the test"},
               Fault{{"lone", "1", "fail", "barrier"}, {}, "rank 1 during the test, barrier"},
               Fault{{"lone", "1", "fail", "patient"}, {}, "rank 1 during the test, barrier"});
  const bool fails = fault.killed.empty();
  World world(4, fault.mode);
  const auto begin = Clock::now();
  for (const int rank : fault.killed)
    world.send(rank, SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    if (std::count(fault.killed.begin(), fault.killed.end(), rank) > 0) continue;
    const bool has_failed = fails && rank == 1;
    CHECK(world.code(rank) == (has_failed ? 3 : 4));
    if (!has_failed)
      CHECK_THAT(world.console(rank),
                 Contains("Rank " + std::to_string(rank) + " lost " + fault.loss) &&
                     Contains(fails ? "Rank 1 ended with an error" : "ended without notice"));
  }
  CHECK(Clock::now() - begin < kLimit);
}

TEST_CASE("a process that was suspended ends once it continues, and names the process that was lost first") {
  World world(3, {"exchange"});
  world.send(2, SIGSTOP);
  world.send(1, SIGKILL);
  CHECK(world.code(0) == 4);
  CHECK_THAT(world.console(0), Contains("Rank 0 lost rank 1 during all-to-all"));
  const auto begin = Clock::now();
  world.send(2, SIGCONT);
  CHECK(world.code(2) == 4);
  CHECK(Clock::now() - begin < kLimit);
  CHECK_THAT(world.console(2), Contains("Rank 2 lost rank 1 during all-to-all"));
}

// The launcher with real processes.

namespace {

using test::HelperProcess;

/// The launcher of that many ranks, with its logs in the folder.
HelperProcess start(const ScratchFolder& folder, int processes, std::vector<std::string> mode,
                    const Environment& additional = {}) {
  mode.insert(mode.begin(), {std::to_string(processes), folder.path(), "-"});
  return HelperProcess(folder, "launcher", mode, additional);
}

seconds since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<seconds>(std::chrono::steady_clock::now() - begin);
}

}  // namespace

TEST_CASE("the number of processes if the user gives none") {
  using Case = std::array<int, 4>;
  for (const auto& [workers, replicas, available, processes] :
       {Case{8, 1, 8, 8}, Case{8, 2, 16, 16}, Case{8, 2, 15, 8}, Case{8, 1, 7, 4}, Case{6, 1, 5, 3},
        Case{7, 1, 6, 1}, Case{8, 1, 0, 1}, Case{1, 4, 4, 4}})
    CHECK(default_processes(workers, replicas, available) == processes);
}

TEST_CASE("exit codes: causes come before their consequences") {
  using Mode = std::vector<std::string>;
  for (const auto& [codes, expected] : {std::pair(Mode{"codes", "75", "75"}, 75),
                                        {{"codes", "4", "3", "4"}, 3},
                                        {{"codes", "0", "4"}, 4},
                                        {{"codes", "75", "1"}, 1}}) {
    const ScratchFolder folder;
    CHECK(start(folder, static_cast<int>(codes.size()) - 1, codes).wait() == expected);
  }
}

TEST_CASE("output: rank 0 on the console, the others in their logs, in a folder that must exist") {
  const ScratchFolder folder;
  const std::vector<std::string> arguments = {"3", folder.path(), folder / "logs", "codes", "0", "3", "0"};
  CHECK(HelperProcess(folder, "refused", arguments).wait() == 2);
  CHECK_THAT(folder.read("console-refused"), Contains("logs/rank-1.txt"));
  std::filesystem::create_directory(folder / "logs");
  CHECK(HelperProcess(folder, "launcher", arguments).wait() == 3);
  const std::string console = folder.read("console-launcher");
  CHECK_THAT(console, Contains("rank 0 says 0\nrank 0 says 1\n") && Contains("rank 0 complains\n") &&
                          !Contains("rank 2"));
  // 30 lines and a complaint: the last 20 begin with line 11.
  CHECK_THAT(console, !Contains("rank 1 says 10\n") && Contains("/logs/rank-1.txt):\n  rank 1 says 11\n") &&
                          Contains("  rank 1 says 29\n  rank 1 complains\n"));
  CHECK_THAT(folder.read("logs/rank-1.txt"), Contains("rank 1 says 0\n"));
  CHECK_THAT(folder.read("logs/rank-2.txt"), Contains("rank 2 complains\n"));
  CHECK_FALSE(folder.has("logs/rank-0.txt"));
}

TEST_CASE("signals reach every rank, once") {
  const ScratchFolder folder;
  HelperProcess helper = start(folder, 3, {"signals"});
  folder.await_ranks(3);
  std::string expected;
  for (const int signal : {SIGUSR1, SIGINT, SIGHUP, SIGTERM}) {
    kill(helper.pid(), signal);
    expected += std::to_string(signal) + "\n";
    for (int rank = 0; rank < 3; ++rank)
      folder.await("signals-" + std::to_string(rank), expected);
  }
  CHECK(helper.wait() == 75);
  for (int rank = 0; rank < 3; ++rank)
    CHECK(folder.read("signals-" + std::to_string(rank)) == expected);
  CHECK_FALSE(folder.has("rank-1.txt"));  // wrote nothing
}

TEST_CASE("after a first signal the ranks may take their time to save") {
  const ScratchFolder folder;
  HelperProcess helper = start(folder, 3, {"save", "0", "6", "1"});
  folder.await_ranks(3);
  const auto begin = std::chrono::steady_clock::now();
  kill(helper.pid(), SIGINT);
  CHECK(helper.wait() == 75);
  CHECK(since(begin) >= seconds(6));  // longer than the grace period after a failure
  CHECK(folder.read("console-launcher").empty());
}

TEST_CASE("a second signal ends ranks that are saving, or cannot receive it") {
  const bool suspended = GENERATE(false, true);
  const ScratchFolder folder;
  HelperProcess helper = start(folder, 2, {"save", "60", "60"});
  const std::vector<pid_t> ranks = folder.await_ranks(2);
  if (suspended)
    for (const pid_t pid : ranks)
      kill(pid, SIGSTOP);
  kill(helper.pid(), suspended ? SIGUSR1 : SIGTERM);
  if (suspended)
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));  // later than a repeated request
  else
    for (int rank = 0; rank < 2; ++rank)
      folder.await("saving-" + std::to_string(rank));
  const auto begin = std::chrono::steady_clock::now();
  kill(helper.pid(), SIGTERM);
  CHECK(helper.wait() == 4);
  CHECK(since(begin) < seconds(45));  // the ranks save for 60 s
  for (const pid_t pid : ranks)
    CHECK(test::disappears(pid, seconds(10)));
  if (!suspended) CHECK_THAT(folder.read("console-launcher"), Contains("was killed by signal 15"));
}

TEST_CASE("ranks that are killed together are all named") {
  const ScratchFolder folder;
  HelperProcess helper = start(folder, 4, {"exchange"});
  const std::vector<pid_t> ranks = folder.await_ranks(4);
  kill(ranks[0], SIGKILL);
  kill(ranks[3], SIGKILL);
  CHECK(helper.wait() == 4);
  const std::string console = folder.read("console-launcher");
  for (const int rank : {0, 3})
    CHECK_THAT(console,
               Contains("sdp-train: rank " + std::to_string(rank) + " was killed by signal 9 (Killed)"));
  CHECK_THAT(console, !Contains("rank 1 "));
  CHECK_THAT(folder.read("rank-1.txt"), Contains("Rank 1 lost ranks 0 and 3 during all-to-all"));
}

TEST_CASE("ranks that do not notice are ended after a grace period, or if one was stopped alone") {
  const ScratchFolder folder, saving;
  const auto begin = std::chrono::steady_clock::now();
  CHECK(start(folder, 2, {"codes", "-", "3"}).wait() == 3);
  CHECK(since(begin) >= seconds(4));
  CHECK_THAT(folder.read("console-launcher"), Contains("rank 0 still runs 5 s after"));
  HelperProcess helper = start(saving, 2, {"save", "0", "0"});
  kill(saving.await_ranks(2)[1], SIGTERM);
  CHECK(helper.wait() == 75);
  CHECK(saving.read("saving-0") == std::to_string(SIGTERM));
}

TEST_CASE("no rank outlives a killed launcher, and no folder for temporary files is needed") {
  const ScratchFolder folder;
  HelperProcess helper = start(folder, 2, {"exchange"}, {{"TMPDIR", folder.path() / "none"}});
  const std::vector<pid_t> ranks = folder.await_ranks(2);
  kill(helper.pid(), SIGKILL);
  CHECK(helper.wait() == -SIGKILL);
  for (const pid_t pid : ranks)
    CHECK(test::disappears(pid, seconds(60)));
}

}  // namespace sdp
