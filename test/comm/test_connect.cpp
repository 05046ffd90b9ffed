// Real processes that meet without our launcher, over TCP.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "catch.h"
#include "comm/communicator.h"
#include "helper_process.h"
#include "spec/error.h"

namespace sdp {
namespace {

using test::HelperProcess;
using test::ScratchFolder;

/// A socket that listens on a port of its own, which is free again once the socket is closed.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof(address);
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(socket_, 1) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("no port");
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

/// A port that was free a moment ago.
int free_port() {
  const Listener listener;
  return listener.port();
}

/// The local addresses on which a port is listened on, as the kernel writes them.
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

std::vector<std::unique_ptr<HelperProcess>> start_ranks(const ScratchFolder& folder, int world,
                                                        const std::vector<std::string>& mode,
                                                        int master_port = free_port(),
                                                        const Environment& additional = {}) {
  const std::string port = std::to_string(master_port);
  std::vector<std::string> arguments = {"0", folder.path(), "-"};
  arguments.insert(arguments.end(), mode.begin(), mode.end());
  std::vector<std::unique_ptr<HelperProcess>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    Environment environment = {{"RANK", std::to_string(rank)},
                               {"WORLD_SIZE", std::to_string(world)},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", port}};
    for (const auto& [name, value] : additional)
      environment[name] = value;
    ranks.push_back(std::make_unique<HelperProcess>(folder, std::to_string(rank), arguments, environment));
  }
  return ranks;
}

}  // namespace

TEST_CASE("processes started by torchrun's variables meet, exchange and part") {
  const ScratchFolder folder;
  const auto ranks = start_ranks(folder, 3, {"exchange", "20"});
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    CHECK(ranks[rank]->wait() == 0);
    CHECK(folder.read("console-" + std::to_string(rank)).empty());
  }
}

TEST_CASE("the store listens on loopback only, unless there are several hosts") {
  const auto addresses = [](const Environment& additional) {
    const ScratchFolder folder;
    const int port = free_port();
    const auto ranks = start_ranks(folder, 2, {"exchange"}, port, additional);
    folder.await("ready-0");
    folder.await("ready-1");
    return listening_addresses(port);
  };
  const std::set<std::string> loopback = {"0100007F"};
  CHECK(addresses({}) == loopback);
  // One host whose name is no loopback address, and perhaps none that this process could reach.
  CHECK(addresses({{"MASTER_ADDR", "no-such-host"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}) ==
        loopback);
  const std::set<std::string> several =
      addresses({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"GLOO_SOCKET_IFNAME", "lo"}});
  REQUIRE(several.size() == 1);
  CHECK(several.begin()->find_first_not_of('0') == std::string::npos);
}

TEST_CASE("the loss of the rank that serves the store is an error at once") {
  const ScratchFolder folder;
  const auto ranks = start_ranks(folder, 3, {"exchange"});
  for (int rank = 0; rank < 3; ++rank)
    folder.await("ready-" + std::to_string(rank));
  const auto begin = std::chrono::steady_clock::now();
  kill(ranks[0]->pid(), SIGKILL);
  CHECK(ranks[1]->wait() == 4);
  CHECK(ranks[2]->wait() == 4);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  CHECK(folder.read("console-1").find("Rank 1 lost the other processes during all-to-all: ") !=
        std::string::npos);
}

TEST_CASE("a port that is taken, and peers that never come") {
  const Listener taken;
  Ranks ranks;
  ranks.world = 2;
  ranks.source = "test";
  ranks.master_address = "127.0.0.1";
  ranks.master_port = taken.port();
  for (const bool single_host : {true, false}) {
    ranks.single_host = single_host;
    CHECK_THROWS_AS(connect(ranks, at::kCPU, std::chrono::seconds(2)), UsageError);
  }

  ranks.single_host = true;
  ranks.master_port = free_port();
  try {
    connect(ranks, at::kCPU, std::chrono::seconds(1));
    FAIL("connected to nobody");
  } catch (const PeerLostError& error) {
    const std::string message = error.what();
    CHECK(message.find("Rank 0 could not meet the other 1 processes at 127.0.0.1:") == 0);
  }
}

TEST_CASE("a world of one meets nobody") {
  const auto comm = connect(Ranks{}, at::kCPU, std::chrono::seconds(1));
  const at::Tensor recv = at::zeros({3});
  comm->all_to_all(recv, at::arange(3, at::kFloat), {3}, {3}).wait();
  CHECK(recv.equal(at::arange(3, at::kFloat)));
  comm->barrier();
  CHECK(comm->traffic() == Traffic{});
}

}  // namespace sdp
