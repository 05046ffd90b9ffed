#include "doctor/network.h"
#include "process/identity.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>


namespace sdp {
namespace {

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (!a || !b || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  if (a->sa_family == AF_INET6)
    return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
  return false;
}

/// All of 127.0.0.0/8 belongs to this host, although the interface lists a single address of it.
bool is_loopback(const sockaddr* address) {
  return address->sa_family == AF_INET &&
         (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::string> infiniband_devices() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::string interface_of(const std::string& host_or_address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_or_address.c_str(), nullptr, &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(first, &freeifaddrs);
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next)
    for (const ifaddrs* one = interfaces.get(); one; one = one->ifa_next)
      if (one->ifa_addr && (same_address(address->ai_addr, one->ifa_addr) ||
                            (is_loopback(address->ai_addr) && is_loopback(one->ifa_addr))))
        return one->ifa_name;
  return "";
}

std::string gloo_interface(const Ranks& ranks) {
  if (ranks.world == 1) return "";
  if (ranks.single_host) return interface_of(kLoopback);
  const std::string named = environment_value("GLOO_SOCKET_IFNAME");
  if (!named.empty()) return named;
  const std::string own = interface_of(host_name());
  return own.empty() ? "?" : own;
}

std::string nccl_network() {
  const std::string named = environment_value("NCCL_SOCKET_IFNAME");
  if (!named.empty()) return named;
  std::string text;
  if (environment_value("NCCL_IB_DISABLE") != "1")
    for (const std::string& device : infiniband_devices())
      text += (text.empty() ? "" : " ") + device;
  return text.empty() ? "NCCL's choice" : text;
}

}  // namespace sdp
