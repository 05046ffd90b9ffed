#pragma once

// Files of a folder by a pattern of their names.

#include <filesystem>
#include <string>
#include <vector>

namespace sdp {

/// The files in `folder` whose names match `pattern` as fnmatch(3) does it (*, ?, [abc], \ before a character
/// that stands for itself; a leading . only matches itself), sorted by name, byte by byte. Folders are left
/// out, and nothing below them is looked at: a pattern with a / matches nothing. Empty where nothing matches.
/// Throws DataError when the folder cannot be listed.
std::vector<std::filesystem::path> files_matching(const std::filesystem::path& folder,
                                                  const std::string& pattern);

}  // namespace sdp
