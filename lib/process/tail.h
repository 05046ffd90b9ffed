#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>

namespace sdp {

/// The last lines of a file, at most 20, ignoring its first `begin_bytes`; none if the file cannot be read.
std::deque<std::string> last_lines(const std::filesystem::path& path, std::uintmax_t begin_bytes);

}  // namespace sdp
