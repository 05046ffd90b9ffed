#include "comm/sockets.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

namespace sdp {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

Addresses resolve(const std::string& host, int port, int type) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw std::runtime_error(fmt::format("cannot resolve {}: {}", host, gai_strerror(error)));
  return {found, &freeaddrinfo};
}

/// The local address from which the kernel would send to that host.
sockaddr_storage local_address_towards(const std::string& host) {
  const Addresses addresses = resolve(host, /*port=*/9, SOCK_DGRAM);  // nothing is sent
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    const Descriptor probe(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    if (probe.is_open() && connect(probe.number(), one->ai_addr, one->ai_addrlen) == 0 &&
        getsockname(probe.number(), reinterpret_cast<sockaddr*>(&local), &length) == 0)
      return local;
  }
  fail(fmt::format("no route to {}", host));
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

/// Waits for events; false at the deadline.
bool poll_before(int descriptor, short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd polled = {.fd = descriptor, .events = events, .revents = 0};
    const int ready = poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("poll");
    if (left.count() <= 0) return false;
  }
}

/// The result is not open if connecting fails; errno then has the reason.
Descriptor try_connect(const addrinfo& address, Deadline deadline) {
  Descriptor made(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.is_open()) return {};
  if (connect(made.number(), address.ai_addr, address.ai_addrlen) == 0) return made;
  if (errno != EINPROGRESS) return {};
  if (!poll_before(made.number(), POLLOUT, deadline)) {
    errno = ETIMEDOUT;
    return {};
  }
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(made.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  errno = error;
  return error == 0 ? std::move(made) : Descriptor();
}

}  // namespace

void check_resolves(const std::string& host) {
  resolve(host, /*port=*/0, SOCK_STREAM);
}

std::string address_towards(const std::string& host) {
  const sockaddr_storage local = local_address_towards(host);
  if (is_loopback(local)) return "";
  char text[NI_MAXHOST];
  const auto* address = reinterpret_cast<const sockaddr*>(&local);
  if (const int error = getnameinfo(address, sizeof(local), text, sizeof(text), nullptr, 0, NI_NUMERICHOST))
    throw std::runtime_error(fmt::format("cannot format this host's address: {}", gai_strerror(error)));
  return text;
}

Descriptor listen_on_free_port(const std::string& towards, bool loopback_only) {
  sockaddr_storage address{};
  address.ss_family = loopback_only ? AF_INET : local_address_towards(towards).ss_family;
  if (loopback_only) reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Descriptor listener(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const socklen_t length = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (!listener.is_open() ||
      bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.number(), SOMAXCONN) != 0)
    fail("cannot listen");
  return listener;
}

int port_of(const Descriptor& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail("cannot read the port of the listening socket");
  return ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                            : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

Descriptor accept_before(const Descriptor& listener, Deadline deadline) {
  while (poll_before(listener.number(), POLLIN, deadline)) {
    Descriptor accepted(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.is_open()) return accepted;
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) fail("cannot accept a connection");
  }
  return {};
}

Descriptor connect_before(const std::string& host, int port, Deadline deadline) {
  const Addresses addresses = resolve(host, port, SOCK_STREAM);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next)
    if (Descriptor connected = try_connect(*one, deadline); connected.is_open()) return connected;
  fail(fmt::format("cannot connect to {}:{}", host, port));
}

void send_all(const Descriptor& socket, const std::string& text) {
  // The text is short enough for the kernel's buffer.
  if (send(socket.number(), text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
    fail("cannot send");
}

std::string receive_before(const Descriptor& socket, size_t bytes, Deadline deadline) {
  std::string text(bytes, '\0');
  for (size_t got = 0; got < bytes;) {
    if (!poll_before(socket.number(), POLLIN, deadline))
      throw std::runtime_error("a process has accepted the connection and says nothing");
    const ssize_t more = recv(socket.number(), text.data() + got, bytes - got, MSG_DONTWAIT);
    if (more == 0) throw std::runtime_error("a process has closed the connection");
    if (more < 0 && errno != EAGAIN && errno != EINTR) fail("cannot receive");
    got += more > 0 ? static_cast<size_t>(more) : 0;
  }
  return text;
}

void notice_lost_host(const Descriptor& socket) {
  const auto set = [&](int level, int option, int value) {
    if (setsockopt(socket.number(), level, option, &value, sizeof(value)) != 0) fail("setsockopt");
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace sdp
