#pragma once

// SLURM's two compressed lists. Free of LibTorch.

#include <string>
#include <vector>

namespace sdp {

/// "gpu[03-05,9],login" -> gpu03, gpu04, gpu05, gpu9, login. Several brackets in a name multiply, the first
/// one slowest. Throws UsageError naming `variable` when the list is malformed or longer than 65536 hosts.
std::vector<std::string> expand_node_list(const std::string& variable, const std::string& list);

/// Tasks of each node: "4(x2),3" -> 4, 4, 3. Throws UsageError naming `variable` when the list is malformed.
std::vector<int> expand_tasks_per_node(const std::string& variable, const std::string& list);

}  // namespace sdp
