#pragma once

// Conclusions from the facts that all ranks report. Pure functions.

#include <vector>

#include "doctor/facts.h"
#include "doctor/finding.h"

namespace sdp {

/// All ranks run the same program with the LibTorch it was compiled for (minor version): other versions may
/// give other random numbers, results or exchanges.
Finding judge_versions(const std::vector<Report>& ranks);

/// The driver supports this build's CUDA: the same major version is enough, whatever the minor version
/// (NVIDIA, "CUDA Compatibility"). Skipped without a driver, as the CPU is used.
Finding judge_driver(const std::vector<Report>& ranks);

/// Every rank has a device of the same kind, and no two share a GPU, which NCCL refuses.
Finding judge_devices(const std::vector<Report>& ranks);

/// Ranks on several hosts reach each other over an interface other than loopback.
Finding judge_network(const std::vector<Report>& ranks);

/// The hosts' clocks are within a minute of each other: times in logs and checkpoints are compared, and the
/// credentials of SLURM and Kerberos depend on the clocks.
Finding judge_clocks(const std::vector<Report>& ranks);

}  // namespace sdp
