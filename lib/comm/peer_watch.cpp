#include "comm/peer_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <random>
#include <sstream>
#include <stdexcept>

namespace sdp {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kLoopback = "127.0.0.1";
constexpr std::chrono::seconds kHelloTimeout{5};
constexpr std::chrono::milliseconds kSameTime{100};

/// It is to blame, not only another one's victim.
bool is_cause(Departure departure) {
  return departure == Departure::kSilent || departure == Departure::kError;
}

bool is_word(char byte) {
  return byte == static_cast<char>(Departure::kFinished) || byte == static_cast<char>(Departure::kError) ||
         byte == static_cast<char>(Departure::kPeerLost);
}

std::string random_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

/// How a process introduces itself: it knows the listener's token, and says its rank.
std::string hello(const std::string& token, int rank) {
  return fmt::format("{} {:08}", token, rank);
}

std::string address_key(int rank) {
  return fmt::format("watch/{}", rank);
}

struct Address {
  std::string host;
  int port = 0;
  std::string token;
};

Address read_address(c10d::Store& store, int rank, const std::string& master) {
  std::istringstream words(store.get_to_str(address_key(rank)));
  Address address;
  if (!(words >> address.host >> address.port >> address.token))
    throw std::runtime_error(fmt::format("no address of rank {} in the store", rank));
  if (address.host == "master") address.host = master;
  return address;
}

/// The rank of who says hello to a listener; nothing for strangers.
std::optional<int> read_hello(const Socket& socket, const std::string& token) {
  const size_t bytes = hello(token, 0).size();
  const std::string text = receive_before(socket, bytes, Clock::now() + kHelloTimeout);
  int rank = -1;
  if (text.size() == bytes) std::from_chars(text.data() + token.size() + 1, text.data() + bytes, rank);
  return rank >= 0 && text == hello(token, rank) ? std::optional(rank) : std::nullopt;
}

/// A connection with every other process, [W]: with lower ranks made here, with higher ones by them.
std::vector<Socket> meet_all(c10d::Store& store, const PeerWatch::Options& options) {
  const Deadline deadline = Clock::now() + options.timeout;
  const bool one_host = options.master.empty();
  const Socket listener = listen_on_free_port(options.master, one_host);
  const std::string token = random_token();
  const std::string own = one_host ? kLoopback : address_towards(options.master);
  store.set(address_key(options.rank),
            fmt::format("{} {} {}", own.empty() ? "master" : own, port_of(listener), token));
  std::vector<Socket> peers(static_cast<size_t>(options.size));
  for (int rank = 0; rank < options.rank; ++rank) {
    const Address address = read_address(store, rank, options.master);
    Socket& peer = peers[static_cast<size_t>(rank)];
    peer = connect_before(address.host, address.port, deadline);
    send_all(peer, hello(address.token, options.rank));
  }
  for (int missing = options.size - 1 - options.rank; missing > 0;) {
    Socket accepted = accept_before(listener, deadline);
    if (!accepted.is_open()) throw std::runtime_error(fmt::format("{} processes did not come", missing));
    const std::optional<int> rank = read_hello(accepted, token);
    if (!rank || *rank <= options.rank || *rank >= options.size || peers[*rank].is_open()) continue;
    peers[*rank] = std::move(accepted);
    --missing;
  }
  for (const Socket& peer : peers)
    if (peer.is_open() && !one_host) notice_lost_host(peer);
  return peers;
}

std::string list(const std::vector<int>& ranks) {
  const std::string all = fmt::format("{}", fmt::join(ranks.begin(), ranks.end() - 1, ", "));
  return ranks.size() == 1 ? fmt::format("rank {}", ranks.front())
                           : fmt::format("ranks {} and {}", all, ranks.back());
}

std::string capitalized(std::string text) {
  text.front() = static_cast<char>(std::toupper(text.front()));
  return text;
}

}  // namespace

Loss describe_loss(const std::vector<Departure>& departures) {
  std::vector<int> silent, failed, causes;
  for (int rank = 0; rank < static_cast<int>(departures.size()); ++rank) {
    const Departure departure = departures[static_cast<size_t>(rank)];
    if (departure == Departure::kSilent) silent.push_back(rank);
    if (departure == Departure::kError) failed.push_back(rank);
    if (is_cause(departure)) causes.push_back(rank);
  }
  if (causes.empty())
    return {"the other processes",
            "None of them was seen to end: one hangs, or the network between them failed."};
  Loss loss;
  loss.who = list(causes);
  if (!silent.empty())
    loss.why = fmt::format("{} ended without a word, as after a kill or a crash.", capitalized(list(silent)));
  if (!failed.empty())
    loss.why += fmt::format("{}{} ended with an error, which is in {} log.", loss.why.empty() ? "" : " ",
                            capitalized(list(failed)), failed.size() == 1 ? "its" : "their");
  return loss;
}

PeerWatch::PeerWatch(c10d::Store& store, Options options)
    : options_(std::move(options)),
      peers_(meet_all(store, options_)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      departures_(peers_.size(), Departure::kNone),
      closed_(peers_.size(), false) {
  if (!stop_.is_open()) throw std::runtime_error("no event descriptor");
  // Signals are for the threads that were there before.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PeerWatch::~PeerWatch() {
  eventfd_write(stop_.descriptor(), 1);
  thread_.join();
}

void PeerWatch::leave(Departure how) {
  {
    const std::lock_guard lock(mutex_);
    if (said_) return;
    said_ = true;
  }
  const char word = static_cast<char>(how);
  for (const Socket& peer : peers_)
    if (peer.is_open()) send(peer.descriptor(), &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::vector<Departure> PeerWatch::after_failure(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const bool known = changed_.wait_for(
      lock, limit, [&] { return std::any_of(departures_.begin(), departures_.end(), is_cause); });
  if (known) {
    lock.unlock();
    std::this_thread::sleep_for(kSameTime);
    lock.lock();
  }
  return departures_;
}

void PeerWatch::watch() {
  std::vector<pollfd> polled;
  for (const Socket& peer : peers_)
    polled.push_back({.fd = peer.descriptor(), .events = POLLIN, .revents = 0});
  polled.push_back({.fd = stop_.descriptor(), .events = POLLIN, .revents = 0});
  bool called = !options_.unnoticed;
  for (;;) {
    int wait_ms = -1;
    if (first_loss_ && !called) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first_loss_ + kPatience - Clock::now());
      wait_ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    const int ready = poll(polled.data(), polled.size(), wait_ms);
    if (ready > 0 && polled.back().revents != 0) return;
    for (size_t peer = 0; ready > 0 && peer < peers_.size(); ++peer) {
      if (polled[peer].revents == 0) continue;
      hear(peer);
      if (closed_[peer]) polled[peer].fd = -1;
    }
    if (called || !first_loss_ || Clock::now() < *first_loss_ + kPatience) continue;
    called = true;
    leave(Departure::kPeerLost);
    options_.unnoticed(after_failure(std::chrono::milliseconds(0)));
  }
}

void PeerWatch::hear(size_t peer) {
  char word = 0;
  const ssize_t received = recv(peers_[peer].descriptor(), &word, 1, MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const std::lock_guard lock(mutex_);
  Departure& departure = departures_[peer];
  if (received == 1 && is_word(word)) {
    departure = static_cast<Departure>(word);
  } else {
    closed_[peer] = true;
    if (departure == Departure::kNone) departure = Departure::kSilent;
  }
  if (!first_loss_ && departure != Departure::kFinished) first_loss_ = Clock::now();
  changed_.notify_all();
}

}  // namespace sdp
