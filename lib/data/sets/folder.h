#pragma once

// What the folder of a data set holds: for finding its files, and for saying what was found in their place.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sdp {

/// Names of all that is in a folder, sorted. Throws DataError where it is no folder or can't be listed.
std::vector<std::string> names_in(const std::filesystem::path& folder);

bool contains(const std::vector<std::string>& names, std::string_view name);

/// "a, b and 7 more"; "nothing" for none.
std::string enumerate(const std::vector<std::string>& names);

}  // namespace sdp
