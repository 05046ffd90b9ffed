#pragma once

// Which processes compute on the same GPU. NCCL refuses that in its first collective, in words of its own;
// here it is found when the processes meet.

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace sdp {

/// Where a process computes, as NCCL distinguishes devices: two processes are on one device where both are
/// equal.
struct DevicePlace {
  std::string host;    ///< NCCL_HOSTID where it is set, else host name and boot id
  std::string device;  ///< PCI bus id of the GPU

  bool operator==(const DevicePlace&) const = default;
};

/// This process's host, for DevicePlace.
std::string nccl_host();

/// Collective over the store: the places of all ranks, in order of rank.
std::vector<DevicePlace> gather_places(c10d::Store& store, int rank, int size, const DevicePlace& mine);

/// The message for the user where NCCL would find two of the ranks on one device: which ranks share one, and
/// what to do. Empty where every rank has a device of its own. `places`: by rank.
std::string refuse_shared_devices(const std::vector<DevicePlace>& places);

}  // namespace sdp
