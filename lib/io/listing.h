#pragma once

// What a folder holds.

#include <filesystem>
#include <string>
#include <vector>

namespace sdp {

struct FolderEntry {
  std::string name;
  bool is_folder;      ///< also of a link to one
  bool leads_nowhere;  ///< a link to what is not there, or to itself
};

/// All that is in `folder`, sorted by name, byte by byte. Throws DataError when it cannot be listed.
std::vector<FolderEntry> list_folder(const std::filesystem::path& folder);

/// The names of all that is in `folder`, likewise; none if it does not exist.
std::vector<std::string> entry_names(const std::filesystem::path& folder);
/// The files in `folder` whose names match `pattern` as fnmatch(3) does it (*, ?, [abc], \ before a character
/// that stands for itself; a leading . only matches itself), sorted by name, byte by byte. Folders are left
/// out, and nothing below them is looked at: a pattern with a / matches nothing. Empty where nothing matches.
/// Throws DataError when the folder cannot be listed.
std::vector<std::filesystem::path> files_matching(const std::filesystem::path& folder,
                                                  const std::string& pattern);

}  // namespace sdp
