#pragma once

// TCP connections between processes. Internal to comm/; does not depend on LibTorch. Errors are
// std::runtime_error.

#include <chrono>
#include <string>

#include "io/file.h"

namespace sdp {

using Deadline = std::chrono::steady_clock::time_point;

/// Throws if the name or address is unknown.
void check_resolves(const std::string& host);

/// The address from which this host reaches `host` (a name or an address); "" if `host` is this host.
std::string address_towards(const std::string& host);

/// Listens on a free port, either of the loopback interface or of all interfaces. In the latter case the
/// address family is the one used to reach the host `towards`.
Descriptor listen_on_free_port(const std::string& towards, bool loopback_only);
int port_of(const Descriptor& listener);

/// Accepts a connection. The result is not open if the deadline passes first.
Descriptor accept_before(const Descriptor& listener, Deadline deadline);
Descriptor connect_before(const std::string& host, int port, Deadline deadline);

void send_all(const Descriptor& socket, const std::string& text);
/// That many bytes.
std::string receive_before(const Descriptor& socket, size_t bytes, Deadline deadline);

/// Makes the kernel close the connection about 30 s after the other host has stopped answering.
void notice_lost_host(const Descriptor& socket);

}  // namespace sdp
