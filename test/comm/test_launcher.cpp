// The launcher with real processes.

#include <array>
#include <csignal>
#include <thread>

#include "catch.h"
#include "comm/launcher.h"
#include "helper_process.h"

namespace sdp {
namespace {

using Catch::Contains;
using std::chrono::seconds;
using test::HelperProcess;
using test::ScratchFolder;

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
