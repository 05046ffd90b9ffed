#pragma once

// Parses SLURM's two compressed lists. Does not depend on LibTorch.

#include <string>
#include <vector>

namespace sdp {

/// Host names: "gpu[03-05,9],login" -> gpu03, gpu04, gpu05, gpu9, login. A name with several brackets stands
/// for all combinations; the first bracket varies slowest. Throws UsageError naming `variable` if the list is
/// malformed or longer than 65536 hosts.
std::vector<std::string> expand_node_list(const std::string& variable, const std::string& list);

/// Tasks per node: "4(x2),3" -> 4, 4, 3. Throws UsageError naming `variable` if the list is malformed.
std::vector<int> expand_tasks_per_node(const std::string& variable, const std::string& list);

}  // namespace sdp
