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

}  // namespace sdp
