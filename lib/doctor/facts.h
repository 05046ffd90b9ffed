#pragma once

// What one process knows about itself and its device, before it computes anything.

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "comm/ranks.h"

namespace sdp {

/// Versions of CUDA as it counts them: 13000 is 13.0. 0: there is none.
struct CudaVersions {
  int built = 0;               ///< headers this program was compiled with
  int runtime = 0;             ///< library it runs with
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

/// "13.0" of 13000.
std::string cuda_text(int version);

struct Versions {
  std::string program;
  std::string torch_built;    ///< LibTorch whose headers this program was compiled with, "2.11.0"
  std::string torch_runtime;  ///< LibTorch it runs with

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
  std::string device;             ///< "CPU", or the GPU's name with its number; empty: none could be chosen
  std::string device_id;          ///< the GPU's UUID, or its PCI address where it has none; empty on a CPU
  int64_t memory_bytes = 0;       ///< of the device; on a CPU of the host
  int64_t free_memory_bytes = 0;  ///< of it
  int cores = 0;                  ///< that this process may use, perhaps with others of its host
  int threads = 0;                ///< with which it computes; 0: not decided yet
  std::string interface;          ///< over which Gloo reaches the other processes; empty: there are none
  std::string nccl_network;       ///< over which NCCL reaches other hosts; empty on a CPU
  double clock_s = 0;             ///< of this host at about the same moment, since 1970

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

/// All that one process reports.
struct Report {
  Versions versions;
  CudaVersions cuda;
  RankFacts facts;
};

Versions own_versions();
CudaVersions own_cuda_versions();
/// `device`: none where none could be chosen.
RankFacts own_facts(const Ranks& ranks, const std::optional<c10::Device>& device);

/// For the other ranks.
std::string to_text(const Report& report);
Report report_from(const std::string& text);

}  // namespace sdp
