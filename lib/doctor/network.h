#pragma once

// Which network interface connects this process with the others. Does not include LibTorch.

#include <string>

#include "comm/ranks.h"

namespace sdp {

/// The interface that Gloo uses: loopback if all processes are on one host, else the one named by
/// GLOO_SOCKET_IFNAME, else the one with the address of this host's name. Empty for a single process; "?" if
/// the host's name does not resolve to an address of this host.
std::string gloo_interface(const Ranks& ranks);

/// What NCCL may use to reach other hosts: the interface named by NCCL_SOCKET_IFNAME, the host's InfiniBand
/// devices, or NCCL's own choice.
std::string nccl_network();

/// The interface with the address of that name; empty if no interface of this host has it.
std::string interface_of(const std::string& host_or_address);

}  // namespace sdp
