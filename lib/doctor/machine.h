#pragma once

// What every process, its device and its libraries are, and whether they fit together.

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "doctor/finding.h"

namespace sdp {

/// One process's row of the table of ranks.
struct ProcessFacts {
  int rank = 0;
  std::string host;
  std::string device;        ///< "CPU", or the GPU's name and PCI address; empty: no device could be selected
  int64_t memory_bytes = 0;  ///< of the device; on a CPU of the host
  int64_t free_memory_bytes = 0;  ///< of a GPU
  int cores = 0;                  ///< that this process may use, possibly shared with others of its host
  int threads = 0;                ///< number of threads it computes with
  std::string interface;          ///< that Gloo uses (gloo_interface)
  std::string versions;           ///< of this program and its libraries
  std::string torch_built;        ///< LibTorch that this program was compiled for, "2.11.0"
  std::string torch_runtime;      ///< and the one that it runs with
  /// CUDA versions of this build and of the newest that the driver supports, as CUDA encodes them: 13000 is
  /// 13.0. 0: none.
  int cuda_built = 0;
  int cuda_driver = 0;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("rank", &ProcessFacts::rank);
    field("host", &ProcessFacts::host);
    field("device", &ProcessFacts::device);
    field("memory_bytes", &ProcessFacts::memory_bytes);
    field("free_memory_bytes", &ProcessFacts::free_memory_bytes);
    field("cores", &ProcessFacts::cores);
    field("threads", &ProcessFacts::threads);
    field("interface", &ProcessFacts::interface);
    field("versions", &ProcessFacts::versions);
    field("torch_built", &ProcessFacts::torch_built);
    field("torch_runtime", &ProcessFacts::torch_runtime);
    field("cuda_built", &ProcessFacts::cuda_built);
    field("cuda_driver", &ProcessFacts::cuda_driver);
  }
};

/// `device`: std::nullopt if none could be selected.
ProcessFacts own_facts(const Ranks& ranks, const std::optional<c10::Device>& device);

/// All processes run the same program and libraries, with the LibTorch that it was compiled for (minor
/// version): other versions may give other random numbers, results or exchanges.
Finding check_versions(const std::vector<ProcessFacts>& processes);

/// The driver supports this build's CUDA: the same major version is enough, whatever the minor version
/// (NVIDIA, "CUDA Compatibility"). Skipped without a driver, as the CPU is used.
Finding check_driver(const std::vector<ProcessFacts>& processes);

/// Every process has a device of the same kind, and no two share a GPU, which NCCL refuses.
Finding check_devices(const std::vector<ProcessFacts>& processes);

/// Processes on several hosts reach each other over an interface other than loopback. `processes`: all of
/// them, or only this one if they could not connect.
Finding check_network(const std::vector<ProcessFacts>& processes, const Ranks& ranks);

/// The network interface that Gloo uses: loopback if all processes are on one host, else the one named by
/// GLOO_SOCKET_IFNAME, else the one with the address of this host's name. Empty for a single process.
std::string gloo_interface(const Ranks& ranks);

/// The interface with the address of that name; "?" if no interface of this host has it.
std::string interface_of(const std::string& host_or_address);

}  // namespace sdp
