#pragma once

// What follows from the facts that all ranks report. Pure functions.

#include <vector>

#include "doctor/facts.h"
#include "doctor/finding.h"

namespace sdp {

/// All ranks run the same program and the LibTorch it was compiled for (minor version), as other versions may
/// draw, compute or exchange differently.
Finding judge_versions(const std::vector<Report>& ranks);

/// The driver supports this build's CUDA: one of the same major version does, whatever the minor one (NVIDIA,
/// "CUDA Compatibility"). Skipped where there is no driver, as the CPU is used.
Finding judge_driver(const std::vector<Report>& ranks);

/// Every rank has a device of the same kind, and none shares a GPU, which NCCL refuses.
Finding judge_devices(const std::vector<Report>& ranks);

/// Ranks of several hosts reach each other over an interface that is not loopback.
Finding judge_network(const std::vector<Report>& ranks);

/// Hosts' clocks are within a minute of each other: times in logs and checkpoints are compared, and the
/// credentials of SLURM and Kerberos depend on them.
Finding judge_clocks(const std::vector<Report>& ranks);

}  // namespace sdp
