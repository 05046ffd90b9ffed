#pragma once

// Detects processes that compute on the same GPU. NCCL would refuse them only in its first collective, with
// its own message; here they are detected when the processes meet.

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace sdp {

/// Where a process computes, as NCCL distinguishes devices: two processes share a device if both fields are
/// equal.
struct DevicePlace {
  std::string host;    ///< NCCL_HOSTID if it is set, else host name and boot id
  std::string device;  ///< PCI bus id of the GPU

  bool operator==(const DevicePlace&) const = default;
};

/// The value of DevicePlace::host for this process.
std::string nccl_host();

/// The places of all ranks, in order of rank. Collective, through the store.
std::vector<DevicePlace> gather_places(c10d::Store& store, int rank, int size, const DevicePlace& mine);

/// If NCCL would find two ranks on one device, a message for the user that says which ranks share a device
/// and what to do. Empty if every rank has its own device. `places`: by rank.
std::string refuse_shared_devices(const std::vector<DevicePlace>& places);

}  // namespace sdp
