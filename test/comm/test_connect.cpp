// Real processes that connect over TCP without our launcher.

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <tuple>

#include "catch.h"
#include "comm/communicator.h"
#include "comm/rendezvous.h"
#include "helper_process.h"
#include "message_of.h"
#include "spec/error.h"
#include "spec/hash.h"

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

// How processes meet: through a file in a folder they share, and past strangers who connect to their ports.

namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Deadline in(milliseconds time) {
  return Clock::now() + time;
}

/// Rank 0 of `size` ranks, which waits for the others, and what strangers may find out about it.
struct Host {
  explicit Host(int size)
      : sockets(std::async(std::launch::async, [this, size] { return meet_as(0, size); })) {
    std::istringstream(store->get_to_str("watch/0")) >> address >> port;
    secret = store->get_to_str("watch/secret");
  }
  std::vector<Descriptor> meet_as(int rank, int size) {
    return meet_peers(*store, {.rank = rank, .size = size, .deadline = in(seconds(60))});
  }
  Descriptor connect() const { return connect_before(address, port, in(seconds(10))); }

  c10::intrusive_ptr<c10d::HashStore> store = c10::make_intrusive<c10d::HashStore>();
  std::future<std::vector<Descriptor>> sockets;
  std::string address, secret;
  int port = 0;
};

constexpr size_t kNumberSize = 64;

std::string number_from(const Descriptor& socket) {
  return receive_before(socket, kNumberSize, in(seconds(10)));
}

std::string answer(const std::string& key, const std::string& number, int listener, int rank,
                   const std::string& says = "00000001") {
  return says + " " + hmac_sha256(key, number + " " + std::to_string(listener) + " " + std::to_string(rank));
}

/// Whether the other side closes the connection, at the latest when its patience of 5 s is over.
bool is_turned_away(const Descriptor& socket) {
  pollfd polled = {.fd = socket.number(), .events = POLLIN, .revents = 0};
  char byte = 0;
  return poll(&polled, 1, 30'000) == 1 && recv(socket.number(), &byte, 1, MSG_DONTWAIT) <= 0;
}

std::filesystem::perms mode_of(const std::filesystem::path& path) {
  return std::filesystem::symlink_status(path).permissions();
}
constexpr auto kOwnerOnly = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;

}  // namespace

TEST_CASE("HMAC-SHA-256 agrees with RFC 4231, and equality takes constant time") {
  CHECK(hmac_sha256("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(
      hmac_sha256(std::string(131, '\xaa'),
                  "This is a test using a larger than block-size key and a larger than block-size data. The "
                  "key needs to be hashed before being used by the HMAC algorithm.") ==
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
  using std::string_view_literals::operator""sv;
  for (const auto& [a, b] :
       {std::pair{""sv, ""sv}, {"abc"sv, "abd"sv}, {"abc"sv, "abcd"sv}, {"a\0b"sv, "a\0c"sv}})
    CHECK(equal_in_constant_time(a, b) == (a == b));
}

TEST_CASE("strangers who connect are turned away, and delay nobody") {
  Host host(2);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 40; ++i)  // 5 s each would exceed the deadline
    silent.push_back(host.connect());
  const auto answers_after = [&](const std::string& number) {
    return std::vector<std::string>{
        "GET / HTTP/1.1\r\nHost: a.very.long.name\r\nAccept: text/html, */*; q=0.1\r\n\r\n",
        std::string(1000, '\0'),
        "00000001 " + std::string(64, '0'),
        "00000001 " + number,
        answer("a guess", number, 0, 1),
        answer(host.secret, number, 1, 1),  // for another listener
        answer(host.secret, number, 0, 0, "00000000"),
        answer(host.secret, number, 0, 2, "00000002"),
        answer(host.secret, number, 0, -1, "-0000001"),
        answer(host.secret, number, 0, 1, "1xxxxxxx")};
  };
  for (size_t attempt = 0; attempt < answers_after("").size(); ++attempt) {
    const Descriptor stranger = host.connect();
    send_all(stranger, answers_after(number_from(stranger))[attempt]);
    CHECK(is_turned_away(stranger));
  }
  const Descriptor slow = host.connect();  // a byte at a time
  for (int i = 0; i < 10; ++i)
    send_all(slow, "0");
  CHECK(host.meet_as(1, 2)[0].is_open());
  CHECK(host.sockets.get()[1].is_open());
}

TEST_CASE("a recorded introduction is of no use") {
  Host host(3);
  const Descriptor first = host.connect(), later = host.connect();
  const std::string recorded = answer(host.secret, number_from(first), 0, 1);
  REQUIRE(number_from(later) != recorded);
  send_all(later, recorded);  // before the rank has used it
  CHECK(is_turned_away(later));
  send_all(first, recorded);
  const Descriptor afterwards = host.connect();
  number_from(afterwards);
  send_all(afterwards, recorded);
  CHECK(is_turned_away(afterwards));
  const Descriptor again = host.connect();  // somebody who knows the secret, but the rank is there already
  send_all(again, answer(host.secret, number_from(again), 0, 1));
  CHECK(is_turned_away(again));
  const Descriptor third = host.connect();
  send_all(third, answer(host.secret, number_from(third), 0, 2, "00000002"));
  CHECK(host.sockets.get()[1].is_open());
  CHECK_THROWS(host.connect());  // after the meeting nobody listens
}

TEST_CASE("a listener that says nothing, or ends, is an error at the deadline") {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  const Descriptor silent = test::silent_listener();
  store->set("watch/secret", std::string("secret"));
  store->set("watch/0", "127.0.0.1 " + std::to_string(port_of(silent)));
  CHECK_THROWS_WITH(meet_peers(*store, {.rank = 1, .size = 2, .deadline = in(milliseconds(200))}),
                    Contains("says nothing"));
}

TEST_CASE("rank 0 announces a file that only this user can read, and the others wait for it") {
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch.path() / "runs" / "run";
  CHECK_THROWS_WITH(await_announcement(folder, in(milliseconds(50))), Contains(folder.string()));
  auto other = std::async(std::launch::async, [&] { return await_announcement(folder, in(seconds(60))); });
  {
    const Announcement announced(folder);
    CHECK(announced.problem().empty());
    CHECK(other.get());
    CHECK(mode_of(store_file(folder)) == kOwnerOnly);
    CHECK(mode_of(folder / ".rendezvous") == kOwnerOnly);
    CHECK_THROWS_AS(Announcement(folder), UsageError);
    CHECK(await_announcement(folder, in(seconds(60))));  // the refused one has changed nothing
  }
  CHECK_THROWS(await_announcement(folder, in(milliseconds(50))));
}

TEST_CASE("what killed processes, other users or broken locks leave in the folder") {
  const ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
  const std::filesystem::path file = folder / ".rendezvous";
  SECTION("an announcement without a lock, and a store with old keys, are renewed") {
    put(file, "");
    put(file.string() + ".new", "");
    put(store_file(folder), "old keys");
    CHECK_THROWS(await_announcement(folder, in(milliseconds(50))));
    const Announcement announced(folder);
    CHECK(await_announcement(folder, in(seconds(60))));
    CHECK(std::filesystem::file_size(store_file(folder)) == 0);
    CHECK(mode_of(store_file(folder)) == kOwnerOnly);
  }
  SECTION("a link is not followed") {
    put(folder / "elsewhere", "precious");
    std::filesystem::create_symlink("elsewhere", store_file(folder));
    const Announcement announced(folder);
    CHECK(scratch.read("elsewhere") == "precious");
    CHECK_FALSE(std::filesystem::is_symlink(store_file(folder)));
  }
  SECTION("another user's announcement does not count") {
    put(file, "");
    if (chown(file.c_str(), 12345, 12345) != 0) return;  // not privileged
    const Descriptor descriptor(open(file.c_str(), O_RDWR));
    flock(descriptor.number(), LOCK_EX);
    CHECK_THROWS(await_announcement(folder, in(milliseconds(50))));
  }
  SECTION("an announcement that says that locks do not work") {
    put(file, "-");
    CHECK_FALSE(await_announcement(folder, in(seconds(60))));
  }
}

}  // namespace sdp
