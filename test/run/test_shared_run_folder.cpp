#include <thread>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "process/identity.h"
#include "run/shared_run_folder.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;
using std::chrono::milliseconds;

namespace {

constexpr int kWorld = 3;

/// Every rank shares folders[rank]; rank r > 0 is on host "host r". Returns the error of each rank.
std::vector<std::string> share(const std::vector<fs::path>& folders, milliseconds visible_after,
                               std::vector<SharedRunFolder>* results = nullptr, bool refused = false) {
  std::vector<std::string> messages(kWorld);
  run_thread_ranks(kWorld, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const auto lock = [&]() -> std::unique_ptr<RunLock> {
      if (refused) throw DataError("the disk is full");
      return RunLock::acquire(folders[0], [](const std::string&) {});
    };
    const ProcessPlace mine = {.host = rank == 0 ? host_name() : "host " + std::to_string(rank),
                               .threads = comm.rank() + 1};
    try {
      SharedRunFolder shared = share_run_folder(comm, {folders[rank]}, mine, lock, visible_after);
      if (results) (*results)[rank] = std::move(shared);
      comm.barrier();
    } catch (const Error& error) {
      messages[rank] = std::to_string(static_cast<int>(error.code())) + ": " + error.what();
    }
  });
  return messages;
}

}  // namespace

TEST_CASE("all processes see the run folder that rank 0 locks, and know where all processes run",
          "[shared_run_folder]") {
  const TempFolder folder;
  std::vector<SharedRunFolder> results(kWorld);
  for (const std::string& message :
       share({folder.path(), folder.path(), folder.path()}, milliseconds(0), &results))
    CHECK(message.empty());
  for (const SharedRunFolder& result : results) {
    CHECK((result.lock != nullptr) == (&result == &results[0]));
    REQUIRE(result.processes.size() == kWorld);
    CHECK(result.processes[0].host == host_name());
    CHECK(result.processes[2].host == "host 2");
    CHECK(result.processes[2].threads == 3);
  }
}

TEST_CASE("a host that sees the folder late is waited for", "[shared_run_folder]") {
  const TempFolder folder;
  fs::create_directory(folder / "real");
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(300));
    fs::create_directory_symlink(folder / "real", folder / "late");
  });
  for (const std::string& message :
       share({folder / "real", folder / "real", folder / "late"}, std::chrono::minutes(5)))
    CHECK(message.empty());
  late.join();
}

TEST_CASE("a folder that one host does not see is an error on all processes", "[shared_run_folder]") {
  const TempFolder folder;
  fs::create_directory(folder / "shared");
  fs::create_directory(folder / "own");
  // The lock of another run is not rank 0's.
  const auto other = RunLock::acquire(folder / "own", [](const std::string&) {});
  for (const fs::path& own : {folder / "own", folder / "none"}) {
    for (const std::string& message : share({folder / "shared", folder / "shared", own}, milliseconds(1))) {
      CHECK(contains(message, "2: "));
      CHECK(contains(message, "host 2 (rank 2)"));
      CHECK_FALSE(contains(message, "host 1"));
      CHECK(contains(message, (folder / "shared").string()));
    }
  }
}

TEST_CASE("rank 0 may wait for the lock longer than a collective may take", "[shared_run_folder]") {
  const TempFolder folder;
  const auto body = [&](Communicator& comm) {
    const auto lock = [&] {
      std::this_thread::sleep_for(milliseconds(3500));
      return RunLock::acquire(folder.path(), [](const std::string&) {});
    };
    const SharedRunFolder run =
        share_run_folder(comm, {folder.path()}, {.host = host_name(), .threads = 1}, lock);
    comm.barrier();
  };
  run_thread_ranks(kWorld, body, Exchanges::kAtOnce, at::kCPU, milliseconds(2000));
}

TEST_CASE("a refusal of rank 0 ends all processes with its exit code", "[shared_run_folder]") {
  const TempFolder folder;
  for (const std::string& message :
       share({folder.path(), folder.path(), folder.path()}, milliseconds(0), nullptr, true))
    CHECK(message == "3: the disk is full");
}
