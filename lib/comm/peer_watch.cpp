#include "comm/peer_watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "comm/rendezvous.h"

namespace sdp {
namespace {

constexpr std::chrono::milliseconds kSameTime{100};
/// How often a process checks whether the program that started it still runs.
constexpr std::chrono::seconds kParentInterval{1};

/// Whether the process caused the loss, and did not end because of another loss.
bool is_cause(Departure departure) {
  return departure == Departure::kSilent || departure == Departure::kError;
}

std::string capitalized(std::string text) {
  text.front() = static_cast<char>(std::toupper(text.front()));
  return text;
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const std::string all = fmt::format("{}", fmt::join(ranks.begin(), ranks.end() - 1, ", "));
  return fmt::format("ranks {} and {}", all, ranks.back());
}

ProcessLoss describe_process_loss(const std::vector<Departure>& departures) {
  std::vector<int> silent, failed, causes;
  for (int rank = 0; rank < static_cast<int>(departures.size()); ++rank) {
    const Departure departure = departures[static_cast<size_t>(rank)];
    if (departure == Departure::kSilent) silent.push_back(rank);
    if (departure == Departure::kError) failed.push_back(rank);
    if (is_cause(departure)) causes.push_back(rank);
  }
  if (causes.empty())
    return {"the other processes",
            "None of them was seen to end: one of them hangs, or the network between them failed."};
  ProcessLoss loss;
  loss.who = list_ranks(causes);
  if (!silent.empty())
    loss.why =
        fmt::format("{} ended without notice, as if killed or crashed.", capitalized(list_ranks(silent)));
  if (!failed.empty())
    loss.why += fmt::format("{}{} ended with an error; see {} log.", loss.why.empty() ? "" : " ",
                            capitalized(list_ranks(failed)), failed.size() == 1 ? "its" : "their");
  return loss;
}

ProcessLoss describe_delay(const std::vector<std::optional<ProcessStatus>>& statuses, int rank) {
  std::vector<int> silent, behind;
  const int64_t own = statuses[static_cast<size_t>(rank)]->collectives;
  std::string places;
  for (int other = 0; other < static_cast<int>(statuses.size()); ++other) {
    const auto& where = statuses[static_cast<size_t>(other)];
    if (!where) silent.push_back(other);
    if (!where || where->collectives >= own) continue;
    behind.push_back(other);
    places += fmt::format(" Rank {} answers, but has not reached this collective{}.", other,
                          where->place.empty() ? "" : fmt::format("; it is now in: {}", where->place));
  }
  if (silent.empty() && behind.empty()) return describe_process_loss({});
  ProcessLoss loss;
  if (!silent.empty())
    loss.why =
        fmt::format(" {} {} not answer: {} suspended, or the host hangs.", capitalized(list_ranks(silent)),
                    silent.size() == 1 ? "does" : "do", silent.size() == 1 ? "it is" : "they are");
  // Ranks that are behind may be waiting for the silent ones, so name only the latter.
  if (silent.empty()) loss.why = places;
  loss.who = list_ranks(silent.empty() ? behind : silent);
  loss.why.erase(0, 1);
  return loss;
}

PeerWatch::PeerWatch(c10d::Store& store, Options options)
    : options_(std::move(options)),
      peers_(meet_peers(store, {.rank = options_.rank,
                                .size = options_.size,
                                .master = options_.master,
                                .deadline = Clock::now() + options_.timeout})),
      end_(eventfd(0, EFD_CLOEXEC)),
      agreement_(options_.rank, options_.size),
      inboxes_(peers_.size()),
      closed_(peers_.size(), false),
      departures_(peers_.size(), Departure::kNone),
      statuses_(peers_.size()) {
  if (!end_.is_open())
    throw std::runtime_error(fmt::format("cannot create an event descriptor: {}", std::strerror(errno)));
  // Signals must be handled by the threads that already exist, so block them in the new one.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { watch(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PeerWatch::~PeerWatch() {
  eventfd_write(end_.number(), 1);
  thread_.join();
}

void PeerWatch::send(size_t peer, const Message& message) const {
  static_assert(std::is_trivially_copyable_v<Message>);
  if (peers_[peer].is_open())
    ::send(peers_[peer].number(), &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void PeerWatch::send_all(const Message& message) const {
  for (size_t peer = 0; peer < peers_.size(); ++peer)
    send(peer, message);
}

void PeerWatch::leave(Departure how) {
  {
    const std::lock_guard lock(mutex_);
    if (said_ != Departure::kNone) return;
    said_ = how;
  }
  send_all({.number = static_cast<int64_t>(how), .kind = Message::Kind::kLeaves});
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

std::vector<std::optional<ProcessStatus>> PeerWatch::ask_status(std::chrono::milliseconds limit) {
  const Message own = here();
  std::unique_lock lock(mutex_);
  std::fill(statuses_.begin(), statuses_.end(), std::nullopt);
  statuses_[static_cast<size_t>(options_.rank)] = {own.number, own.text.data()};
  lock.unlock();
  send_all({.kind = Message::Kind::kWhere});
  lock.lock();
  changed_.wait_for(lock, limit, [&] {
    return std::all_of(statuses_.begin(), statuses_.end(),
                       [](const auto& where) { return where.has_value(); });
  });
  return statuses_;
}

PeerWatch::Message PeerWatch::here() const {
  Message message = {.kind = Message::Kind::kHere};
  if (!options_.events.status) return message;
  const ProcessStatus where = options_.events.status();
  message.number = where.collectives;
  where.place.copy(message.text.data(), message.text.size() - 1);
  return message;
}

void PeerWatch::watch() {
  std::vector<pollfd> polled;
  const auto add = [&](int descriptor) {
    polled.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  };
  for (const Descriptor& peer : peers_)
    add(peer.number());
  add(end_.number());
  add(options_.stop_descriptor);
  const pollfd& end = polled[peers_.size()];
  pollfd& stop = polled[peers_.size() + 1];
  for (;;) {
    int wait_ms = -1;
    if (const auto deadline = next_deadline()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
      wait_ms = static_cast<int>(std::max<int64_t>(left.count(), 0));
    }
    const int ready = poll(polled.data(), polled.size(), wait_ms);
    if (ready > 0 && end.revents != 0) return;
    for (size_t peer = 0; ready > 0 && peer < peers_.size(); ++peer) {
      if (polled[peer].revents == 0) continue;
      receive(peer);
      if (closed_[peer]) polled[peer].fd = -1;
    }
    if (ready > 0 && stop.revents != 0) {
      stop.fd = -1;  // the descriptor stays readable
      begin_stop();
    }
    check_deadlines();
  }
}

std::optional<PeerWatch::Clock::time_point> PeerWatch::next_deadline() const {
  std::optional<Clock::time_point> next;
  const auto add = [&](Clock::time_point time) { next = std::min(next.value_or(time), time); };
  if (first_loss_ && !called_unnoticed_) add(*first_loss_ + kPatience);
  if (stop_asked_at_) add(*stop_asked_at_ + options_.answer_timeout);
  if (options_.parent != 0 && !is_orphan_) add(Clock::now() + kParentInterval);
  return next;
}

void PeerWatch::check_deadlines() {
  if (options_.parent != 0 && !is_orphan_ && getppid() != options_.parent) {
    is_orphan_ = true;
    if (options_.events.orphaned) options_.events.orphaned();
    begin_stop();
  }
  if (stop_asked_at_) {
    std::vector<int> missing = agreement_.missing();
    std::erase_if(missing,
                  [&](int rank) { return departures_[static_cast<size_t>(rank)] != Departure::kNone; });
    if (missing.empty()) {
      stop_asked_at_.reset();
    } else if (Clock::now() >= *stop_asked_at_ + options_.answer_timeout) {
      stop_asked_at_.reset();
      agreement_.abandon();
      if (options_.events.unanswered) options_.events.unanswered(missing);
    }
  }
  if (called_unnoticed_ || !first_loss_ || Clock::now() < *first_loss_ + kPatience) return;
  called_unnoticed_ = true;
  // A process that ends because of its own error reports that error, not the losses it caused elsewhere.
  std::unique_lock lock(mutex_);
  if (!options_.events.unnoticed || said_ == Departure::kError) return;
  lock.unlock();
  leave(Departure::kPeerLost);
  options_.events.unnoticed(after_failure(std::chrono::milliseconds(0)));
}

void PeerWatch::receive(size_t peer) {
  Inbox& inbox = inboxes_[peer];
  const ssize_t received = recv(peers_[peer].number(), inbox.bytes.data() + inbox.size,
                                inbox.bytes.size() - inbox.size, MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) {
    closed_[peer] = true;
    if (departures_[peer] == Departure::kNone) lose(peer, Departure::kSilent);
    return;
  }
  inbox.size += static_cast<size_t>(received);
  if (inbox.size < inbox.bytes.size()) return;
  inbox.size = 0;
  Message message;
  std::memcpy(&message, inbox.bytes.data(), sizeof(message));
  read(peer, message);
}

void PeerWatch::read(size_t peer, const Message& message) {
  switch (message.kind) {
    case Message::Kind::kLeaves:
      lose(peer, static_cast<Departure>(message.number));
      break;
    case Message::Kind::kStops:
      agreement_.receive(static_cast<int>(peer), message.number);
      begin_stop();
      break;
    case Message::Kind::kWhere:
      send(peer, here());
      break;
    case Message::Kind::kHere: {
      const std::lock_guard lock(mutex_);
      statuses_[peer] = {message.number, std::string(message.text.data())};
      changed_.notify_all();
      break;
    }
  }
}

void PeerWatch::lose(size_t peer, Departure departure) {
  {
    const std::lock_guard lock(mutex_);
    departures_[peer] = departure;
    if (!first_loss_ && departure != Departure::kFinished) first_loss_ = Clock::now();
    changed_.notify_all();
  }
  if (departure != Departure::kFinished) agreement_.abandon();
}

void PeerWatch::begin_stop() {
  if (const std::optional<int64_t> passed = agreement_.ask()) {
    stop_asked_at_ = Clock::now();
    send_all({.number = *passed, .kind = Message::Kind::kStops});
    if (!agreement_.is_before_training() && options_.events.stopping) options_.events.stopping();
  }
  if (agreement_.is_before_training()) end_before_training();
}

/// Also informs processes that have not yet met the process whose training has not begun: that process ends
/// and may not inform them itself.
void PeerWatch::end_before_training() {
  if (ended_before_training_) return;
  ended_before_training_ = true;
  send_all({.number = StopAgreement::kNotBegun, .kind = Message::Kind::kStops});
  if (options_.events.stopped_before_training) options_.events.stopped_before_training();
}

}  // namespace sdp
