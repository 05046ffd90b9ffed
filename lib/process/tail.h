#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>

namespace sdp {

/// The last lines of a file, 20 at most, of what is behind its first `begin_bytes`; none where it cannot be
/// read.
std::deque<std::string> last_lines(const std::filesystem::path& path, std::uintmax_t begin_bytes);

}  // namespace sdp
