#pragma once

// The contents of a data set's folder: for finding its files, and for messages about missing ones.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sdp {

/// Sorted names of a folder's contents. Throws DataError if it is not a folder or cannot be listed.
std::vector<std::string> names_in(const std::filesystem::path& folder);

bool contains(const std::vector<std::string>& names, std::string_view name);

/// "a", "b" and 7 more, in quotes as names may have blanks and line breaks; "nothing" for an empty list.
std::string enumerate(const std::vector<std::string>& names);

}  // namespace sdp
