// How processes meet: through a file in a folder they share, and past strangers who connect to their ports.

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "catch.h"
#include "comm/rendezvous.h"
#include "helper_process.h"
#include "spec/error.h"
#include "spec/hash.h"

namespace sdp {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;
using test::ScratchFolder;
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
