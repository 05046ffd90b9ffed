#pragma once

// Over which network interface this process meets the others. Free of LibTorch.

#include <string>

#include "comm/ranks.h"

namespace sdp {

/// The interface that Gloo uses: loopback where all processes are on one host, else the one that
/// GLOO_SOCKET_IFNAME names, else the one that has the address of this host's name. Empty for a process
/// alone; "?" where the host's name has no address of this host.
std::string gloo_interface(const Ranks& ranks);

/// What NCCL may use to reach other hosts: the interface that NCCL_SOCKET_IFNAME names, the InfiniBand
/// devices of this host, or its own choice.
std::string nccl_network();

/// The interface that has the address of that name; empty where none of this host's has it.
std::string interface_of(const std::string& host_or_address);

}  // namespace sdp
