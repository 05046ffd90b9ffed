#include "comm/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <list>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>

#include "comm/ranks.h"
#include "spec/hash.h"

namespace sdp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kHelloTimeout{5};
/// A process that knows the secret answers at once. If there are more guests than this, the oldest ones are
/// not ranks and are dropped.
constexpr size_t kMostGuests = 512;

constexpr const char* kSecretKey = "watch/secret";
constexpr size_t kNumberSize = 64;

/// 32 random bytes as hexadecimal digits.
std::string random_number() {
  std::random_device source;
  std::string digits;
  while (digits.size() < kNumberSize)
    digits += fmt::format("{:08x}", source());
  return digits;
}

/// The message with which a process introduces itself to a listener that has sent it `number`.
std::string hello(const std::string& secret, const std::string& number, int listener, int rank) {
  return fmt::format("{:08} {}", rank, hmac_sha256(secret, fmt::format("{} {} {}", number, listener, rank)));
}

std::string address_key(int rank) {
  return fmt::format("watch/{}", rank);
}

struct Address {
  std::string host;
  int port = 0;
};

Address read_address(c10d::Store& store, int rank, const std::string& master) {
  std::istringstream words(store.get_to_str(address_key(rank)));
  Address address;
  if (!(words >> address.host >> address.port))
    throw std::runtime_error(fmt::format("no address for rank {} in the store", rank));
  if (address.host == "master") address.host = master;
  return address;
}

/// A client that has connected and not yet identified itself.
struct Guest {
  Descriptor socket;
  std::string number;  ///< sent to it
  std::string text;    ///< received so far
  Deadline deadline;
};

/// Reads the data that a guest has sent. Returns false if the connection has ended.
bool listen_to(Guest& guest, size_t bytes) {
  std::string text(bytes - guest.text.size(), '\0');
  const ssize_t received = recv(guest.socket.number(), text.data(), text.size(), MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (received <= 0) return false;
  guest.text.append(text, 0, static_cast<size_t>(received));
  return true;
}

/// The rank in a guest's complete hello; nullopt if it is not one of `missing` or does not know the secret.
std::optional<int> rank_of(const Guest& guest, const std::string& secret, int listener,
                           const std::vector<int>& missing) {
  int rank = -1;
  std::from_chars(guest.text.data(), guest.text.data() + guest.text.size(), rank);
  const bool is_rank = std::find(missing.begin(), missing.end(), rank) != missing.end() &&
                       equal_in_constant_time(guest.text, hello(secret, guest.number, listener, rank));
  return is_rank ? std::optional(rank) : std::nullopt;
}

/// Waits until data or a connection arrives, a guest's time is over or the deadline passes.
std::vector<pollfd> poll_all(const Descriptor& listener, const std::list<Guest>& guests, Deadline deadline) {
  std::vector<pollfd> polled = {{.fd = listener.number(), .events = POLLIN, .revents = 0}};
  for (const Guest& guest : guests) {
    polled.push_back({.fd = guest.socket.number(), .events = POLLIN, .revents = 0});
    deadline = std::min(deadline, guest.deadline);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  poll(polled.data(), polled.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  return polled;
}

std::vector<int> missing_above(int rank, const std::vector<Descriptor>& peers) {
  std::vector<int> missing;
  for (int other = rank + 1; other < static_cast<int>(peers.size()); ++other)
    if (!peers[static_cast<size_t>(other)].is_open()) missing.push_back(other);
  return missing;
}

/// Accepts the connections of the processes with higher ranks.
void receive_peers(const Descriptor& listener, const std::string& secret, const Meeting& meeting,
                   std::vector<Descriptor>& peers) {
  const size_t bytes = hello(secret, "", 0, 0).size();
  std::list<Guest> guests;
  while (true) {
    const std::vector<int> missing = missing_above(meeting.rank, peers);
    if (missing.empty()) return;
    if (Clock::now() >= meeting.deadline)
      throw std::runtime_error(fmt::format("no connection from {} {}", missing.size() == 1 ? "rank" : "ranks",
                                           fmt::join(missing, ", ")));
    const std::vector<pollfd> polled = poll_all(listener, guests, meeting.deadline);
    size_t place = 1;
    for (auto guest = guests.begin(); guest != guests.end(); ++place) {
      const bool is_there =
          (polled[place].revents == 0 || listen_to(*guest, bytes)) && Clock::now() < guest->deadline;
      const bool is_complete = guest->text.size() == bytes;
      if (is_there && is_complete)
        if (const std::optional<int> rank = rank_of(*guest, secret, meeting.rank, missing);
            rank && !peers[static_cast<size_t>(*rank)].is_open())
          peers[static_cast<size_t>(*rank)] = std::move(guest->socket);
      guest = is_there && !is_complete ? std::next(guest) : guests.erase(guest);
    }
    if (polled.front().revents == 0) continue;
    if (Descriptor accepted = accept_before(listener, Clock::now()); accepted.is_open()) {
      guests.push_back({std::move(accepted), random_number(), "", Clock::now() + kHelloTimeout});
      send(guests.back().socket.number(), guests.back().number.data(), kNumberSize, MSG_NOSIGNAL);
    }
    if (guests.size() > kMostGuests) guests.pop_front();
  }
}

}  // namespace

std::vector<Descriptor> meet_peers(c10d::Store& store, const Meeting& meeting) {
  std::vector<Descriptor> peers(static_cast<size_t>(meeting.size));
  if (meeting.size == 1) return peers;
  const bool one_host = meeting.master.empty();
  const Descriptor listener = listen_on_free_port(meeting.master, one_host);
  if (meeting.rank == 0) store.set(kSecretKey, random_number());
  const std::string secret = store.get_to_str(kSecretKey);
  const std::string own = one_host ? kLoopback : address_towards(meeting.master);
  store.set(address_key(meeting.rank), fmt::format("{} {}", own.empty() ? "master" : own, port_of(listener)));
  for (int rank = 0; rank < meeting.rank; ++rank) {
    const Address address = read_address(store, rank, meeting.master);
    Descriptor& peer = peers[static_cast<size_t>(rank)];
    peer = connect_before(address.host, address.port, meeting.deadline);
    const std::string number = receive_before(peer, kNumberSize, meeting.deadline);
    send_all(peer, hello(secret, number, rank, meeting.rank));
  }
  receive_peers(listener, secret, meeting, peers);
  for (const Descriptor& peer : peers)
    if (peer.is_open() && !one_host) notice_lost_host(peer);
  return peers;
}

}  // namespace sdp
