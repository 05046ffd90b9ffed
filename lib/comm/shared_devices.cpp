#include "comm/shared_devices.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "comm/peer_watch.h"
#include "process/identity.h"

namespace sdp {
namespace {

/// The number of devices for which a message names the ranks.
constexpr size_t kMostNamed = 4;

std::string place_key(int rank) {
  return fmt::format("device/{}", rank);
}

}  // namespace

std::string nccl_host() {
  if (const char* id = std::getenv("NCCL_HOSTID")) return id;
  return fmt::format("{} {}", host_name(), boot_id());
}

std::vector<DevicePlace> gather_places(c10d::Store& store, int rank, int size, const DevicePlace& mine) {
  store.set(place_key(rank), mine.device + "\n" + mine.host);
  std::vector<DevicePlace> places;
  for (int other = 0; other < size; ++other) {
    const std::string text = store.get_to_str(place_key(other));
    const size_t end = text.find('\n');
    places.push_back({.host = text.substr(end + 1), .device = text.substr(0, end)});
  }
  return places;
}

std::string refuse_shared_devices(const std::vector<DevicePlace>& places) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> ranks_on;
  for (size_t rank = 0; rank < places.size(); ++rank)
    ranks_on[{places[rank].host, places[rank].device}].push_back(static_cast<int>(rank));
  std::string shared;
  size_t count = 0;
  for (const auto& [place, ranks] : ranks_on) {
    if (ranks.size() == 1 || ++count > kMostNamed) continue;
    shared += fmt::format("{}{} on {} of {}", shared.empty() ? "" : "; ", list_ranks(ranks), place.second,
                          place.first.substr(0, place.first.find(' ')));
  }
  if (count == 0) return "";
  if (count > kMostNamed) shared += fmt::format("; and other ranks on {} more GPUs", count - kMostNamed);
  return fmt::format(
      "NCCL requires one process per GPU, but these ranks share a GPU: {}. Start one process per GPU; fewer "
      "processes with several workers each give the same result. Or set train.backend to gloo, which lets "
      "processes share a GPU and exchanges data through host memory.",
      shared);
}

}  // namespace sdp
