#pragma once

// How many cores this process may use. Free of LibTorch.

#include <filesystem>
#include <optional>
#include <string>

namespace sdp {

/// Cores for the calling thread and those it starts: its affinity mask (taskset, SLURM, cpusets), or the
/// quota of its cgroup (containers), rounded up, where that is less. At least 1.
int available_cores();

/// The least `cpu.max` of a cgroup of version 2 and its ancestors, in cores, rounded up; nothing where none
/// is set. `mount`: where the cgroups are mounted, `group`: the path of one below it.
std::optional<int> quota_cores(const std::filesystem::path& mount, const std::string& group);

}  // namespace sdp
