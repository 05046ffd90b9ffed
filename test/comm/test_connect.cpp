// Real processes that meet without our launcher, over TCP.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <memory>

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

std::vector<std::unique_ptr<HelperProcess>> start_ranks(const ScratchFolder& folder, int world,
                                                        const std::vector<std::string>& mode) {
  const std::string port = std::to_string(Listener().port());
  std::vector<std::string> arguments = {"0", folder.path(), "-"};
  arguments.insert(arguments.end(), mode.begin(), mode.end());
  std::vector<std::unique_ptr<HelperProcess>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    const Environment environment = {{"RANK", std::to_string(rank)},
                                     {"WORLD_SIZE", std::to_string(world)},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", port}};
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
  CHECK_THROWS_AS(connect(ranks, at::kCPU, std::chrono::seconds(2)), UsageError);

  ranks.master_port = Listener().port();
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
