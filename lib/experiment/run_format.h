#pragma once

#include <cstdint>

namespace sdp {

/// Version of what docs/runs.md lists as the contract with other programs: the files of a run folder, and
/// what `describe` and `check` print. Keys may be added without a new version.
inline constexpr int64_t kRunFormat = 1;

}  // namespace sdp
