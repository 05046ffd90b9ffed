#pragma once

// Facts about one process and its device, collected before it computes anything.

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "comm/ranks.h"

namespace sdp {

/// CUDA versions as CUDA encodes them: 13000 is 13.0. 0: none.
struct CudaVersions {
  int built = 0;               ///< of the headers that this program was compiled with
  int runtime = 0;             ///< of the library that it runs with
  int driver = 0;              ///< newest CUDA that the driver supports
  std::string driver_release;  ///< "580.65.06"
  std::string cudnn;           ///< "9.15.1"; empty: none
  std::string nccl_built, nccl_runtime;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("cuda_built", &CudaVersions::built);
    field("cuda_runtime", &CudaVersions::runtime);
    field("cuda_driver", &CudaVersions::driver);
    field("driver_release", &CudaVersions::driver_release);
    field("cudnn", &CudaVersions::cudnn);
    field("nccl_built", &CudaVersions::nccl_built);
    field("nccl_runtime", &CudaVersions::nccl_runtime);
  }
};

/// "13.0" for 13000.
std::string cuda_text(int version);

struct Versions {
  std::string program;
  std::string torch_built;    ///< of the headers that this program was compiled with, "2.11.0"
  std::string torch_runtime;  ///< of the library that it runs with

  template <class Visitor>
  static void fields(Visitor& field) {
    field("program", &Versions::program);
    field("torch_built", &Versions::torch_built);
    field("torch_runtime", &Versions::torch_runtime);
  }
};

/// One process's row of the table of ranks.
struct RankFacts {
  int rank = 0;
  std::string host;
  std::string device;        ///< "CPU", or the GPU's name with its number; empty: no device could be selected
  std::string device_id;     ///< the GPU's UUID, or its PCI address if it has none; empty on a CPU
  int64_t memory_bytes = 0;  ///< of the device; on a CPU of the host
  int64_t free_memory_bytes = 0;  ///< of it
  int cores = 0;                  ///< that this process may use, possibly shared with others of its host
  int threads = 0;                ///< number of threads it computes with; 0: not decided yet
  std::string interface;          ///< that Gloo uses to reach the other processes; empty: there are none
  std::string nccl_network;       ///< that NCCL uses to reach other hosts; empty on a CPU
  double clock_s = 0;  ///< this host's clock, in seconds since 1970, read by all ranks at about the same time

  template <class Visitor>
  static void fields(Visitor& field) {
    field("rank", &RankFacts::rank);
    field("host", &RankFacts::host);
    field("device", &RankFacts::device);
    field("device_id", &RankFacts::device_id);
    field("memory_bytes", &RankFacts::memory_bytes);
    field("free_memory_bytes", &RankFacts::free_memory_bytes);
    field("cores", &RankFacts::cores);
    field("threads", &RankFacts::threads);
    field("interface", &RankFacts::interface);
    field("nccl_network", &RankFacts::nccl_network);
    field("clock_s", &RankFacts::clock_s);
  }
};

/// Everything that one process reports.
struct Report {
  Versions versions;
  CudaVersions cuda;
  RankFacts facts;
};

Versions own_versions();
CudaVersions own_cuda_versions();
/// `device`: std::nullopt if none could be selected.
RankFacts own_facts(const Ranks& ranks, const std::optional<c10::Device>& device);

/// Serialized for the other ranks.
std::string to_text(const Report& report);
Report report_from(const std::string& text);

}  // namespace sdp
