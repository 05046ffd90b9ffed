// Real processes that connect over TCP without our launcher.

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "catch.h"
#include "comm/communicator.h"
#include "helper_process.h"
#include "message_of.h"
#include "spec/error.h"

namespace sdp {
namespace {

using std::chrono::seconds;
using test::free_port;
using test::ScratchFolder;
using test::start_ranks;

/// The local addresses with a listener on the port, as the kernel writes them.
std::set<std::string> listening_addresses(int port) {
  std::set<std::string> addresses;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      const size_t colon = local.find(':');
      if (state == "0A" && std::stoi(local.substr(colon + 1), nullptr, 16) == port)
        addresses.insert(local.substr(0, colon));
    }
  }
  return addresses;
}

/// A rank on this host.
Ranks rank_of(int rank, int world, int port = free_port()) {
  Ranks ranks;
  ranks.rank = rank;
  ranks.world = world;
  ranks.source = "test";
  ranks.master_address = "127.0.0.1";
  ranks.master_port = port;
  return ranks;
}

/// The message of the error; empty if the rank connects.
std::string error_of(const Ranks& ranks, const ConnectOptions& options) {
  return message_of<std::exception>([&] { connect(ranks, at::kCPU, options); });
}

}  // namespace

TEST_CASE("processes started with torchrun's variables connect, exchange and disconnect") {
  const ScratchFolder folder;
  const auto ranks = start_ranks(folder, 3, {"exchange", "20"});
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    CHECK(ranks[rank]->wait() == 0);
    CHECK(folder.read("console-" + std::to_string(rank)).empty());
    CHECK(folder.has("destructed-" + std::to_string(rank)));
  }
  std::filesystem::remove(folder / "destructed-1");
  // Static objects are not destructed beside a thread that waits in c10d and cannot be joined.
  const Descriptor silent = test::silent_listener();
  const Environment late = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  const auto alone = start_ranks(folder, 1, {"exchange", "0", "1"}, port_of(silent), late);
  CHECK(alone.front()->wait() == static_cast<int>(ExitCode::kPeerLost));
  CHECK_THAT(folder.read("console-0"), Catch::Contains("rank 0's store"));  // nothing printed is lost
  CHECK_FALSE(folder.has("destructed-1"));
}

TEST_CASE("the store listens only on loopback unless there are several hosts") {
  const auto addresses = [](const Environment& additional) {
    const ScratchFolder folder;
    const int port = free_port();
    const auto ranks = start_ranks(folder, 2, {"exchange"}, port, additional);
    folder.await_ranks(2);
    return listening_addresses(port);
  };
  const std::set<std::string> loopback = {"0100007F"};
  CHECK(addresses({}) == loopback);
  // One host whose name is not a loopback address, and perhaps not one that this process could reach.
  Environment unknown_name = {{"MASTER_ADDR", "no-such-host"},
                              {"LOCAL_RANK", "0"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"SDP_SHARED_FOLDER", "0"}};
  CHECK(addresses(unknown_name) == loopback);
  const std::set<std::string> several =
      addresses({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"GLOO_SOCKET_IFNAME", "lo"}});
  REQUIRE(several.size() == 1);
  CHECK(several.begin()->find_first_not_of('0') == std::string::npos);
}

TEST_CASE("processes that share the run folder meet there, and no port is open") {
  const bool one_host = GENERATE(true, false);
  const ScratchFolder folder;
  const int port = free_port();
  Environment place = {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", one_host ? "2" : "1"}};
  if (!one_host) place.insert({{"SDP_SHARED_FOLDER", "1"}, {"GLOO_SOCKET_IFNAME", "lo"}});
  for (int start = 0; start < 2; ++start) {
    const auto ranks = start_ranks(folder, 2, {"exchange"}, port, place);
    folder.await_ranks(2);
    CHECK(listening_addresses(port).empty());
    for (const char* name : {"ready-0", "ready-1"})
      std::filesystem::remove(folder / name);
  }  // the processes are killed, and the second start renews their files
  for (const auto& rank : start_ranks(folder, 2, {"exchange", "3"}, port, place))
    CHECK(rank->wait() == 0);
  for (const char* name : {".rendezvous", ".rendezvous.store"})
    CHECK_FALSE(folder.has(name));
}

TEST_CASE("an address that nobody knows is refused before anybody waits") {
  Ranks ranks = rank_of(GENERATE(0, 1), 2);
  ranks.master_address = GENERATE("no-such-host.invalid", "256.0.0.1", "::1::", "-");
  ranks.single_host = false;
  const ScratchFolder folder;
  for (const bool shares : {false, true}) {
    ranks.shares_folder = shares;
    CHECK_THROWS_WITH(connect(ranks, at::kCPU, {.timeout = seconds(600), .folder = folder.path()}),
                      Catch::Contains(ranks.master_address) && Catch::Contains("MASTER_ADDR"));
  }
  ranks.single_host = ranks.external_store = true;
  CHECK_THROWS_AS(connect(ranks, at::kCPU, {.timeout = seconds(600)}), UsageError);
}

TEST_CASE("a port in use, peers that never connect, and NCCL without a GPU") {
  const Descriptor taken = test::silent_listener();
  Ranks ranks = rank_of(0, 2, port_of(taken));
  for (const bool single_host : {true, false}) {
    ranks.single_host = single_host;
    CHECK_THROWS_AS(connect(ranks, at::kCPU, {.timeout = seconds(1)}), UsageError);
  }
  const auto message =
      message_of<PeerLostError>([&] { connect(rank_of(0, 2), at::kCPU, {.timeout = seconds(1)}); });
  CHECK_THAT(message, Catch::StartsWith("Rank 0 ") && Catch::Contains("the other process at 127.0.0.1:"));
  const ConnectOptions nccl = {.backend = BackendKind::kNccl,
                               .timeout = seconds(600)};  // no process is awaited
  CHECK_THROWS_AS(connect(rank_of(0, 2), at::kCPU, nccl), UsageError);
  CHECK_THROWS_AS(connect(Ranks{}, at::kCPU, nccl), UsageError);
}

TEST_CASE("hosts that should have equally many processes but do not are refused by all") {
  const auto refusal = [port = free_port()](int rank, int local_world) {
    Ranks own = rank_of(rank, 3, port);
    own.equal_hosts = true;
    own.local_world = local_world;
    return message_of<UsageError>([&] { connect(own, at::kCPU, {.timeout = seconds(20)}); });
  };
  constexpr std::array<std::pair<int, int>, 3> kPlaces = {{{0, 2}, {1, 2}, {1, 1}}};
  const std::vector<std::string> refusals =
      test::in_parallel(3, [&](int i) { return std::apply(refusal, kPlaces.at(static_cast<size_t>(i))); });
  for (size_t i = 0; i < 3; ++i) {
    const std::string local_world = std::to_string(kPlaces[i].second);
    CHECK_THAT(refusals[i], Catch::Contains(local_world + " of 3 processes") &&
                                Catch::Contains(" of " + local_world + ","));
  }
}

TEST_CASE("a port that accepts and stays silent, and another job's store") {
  const Descriptor silent = test::silent_listener();
  CHECK_THROWS_WITH(connect(rank_of(1, 2, port_of(silent)), at::kCPU, {.timeout = seconds(1)}),
                    Catch::StartsWith("Rank 1 ") && Catch::Contains("the other process at 127.0.0.1:") &&
                        Catch::Contains("rank 0's store") && Catch::Contains("MASTER_PORT"));

  // The first job's rank 0 waits for its own rank 1 while a process of the second job connects to its port.
  const auto of_job = [port = free_port()](int rank, const std::string& job) {
    return error_of(rank_of(rank, 2, port), {.timeout = seconds(60), .job = job});
  };
  auto first = std::async(std::launch::async, of_job, 0, "first");
  CHECK_THAT(of_job(1, "second"), Catch::Contains("another job") && Catch::Contains("that job is first") &&
                                      Catch::Contains("MASTER_PORT"));
  CHECK(of_job(1, "first").empty());
  CHECK(first.get().empty());
}

TEST_CASE("two processes with the same rank are refused") {
  const std::vector<std::string> messages = test::in_parallel(3, [port = free_port()](int i) {
    return error_of(rank_of(std::min(i, 1), 3, port), {.timeout = seconds(3)});
  });
  CHECK(std::count_if(messages.begin(), messages.end(), [](const std::string& message) {
          return message.find("Two processes have rank 1") == 0;
        }) == 1);
}

}  // namespace sdp
