#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace sdp {

/// Calls use(number, line, is_whole) for every line of a text file, counted from 1, without its end;
/// is_whole: it has one. A file that is not there has no lines. Throws DataError where it cannot be read.
void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, const std::string& line, bool is_whole)>& use);

}  // namespace sdp
