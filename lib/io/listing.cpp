#include "io/listing.h"

#include <fnmatch.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "io/file.h"

namespace sdp {

namespace fs = std::filesystem;

std::vector<FolderEntry> list_folder(const fs::path& folder) {
  std::vector<FolderEntry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code unknown;
    const bool is_folder = it->is_directory(unknown);
    entries.push_back(
        {.name = it->path().filename().string(), .is_folder = is_folder, .leads_nowhere = bool(unknown)});
  }
  if (error) throw_io_error("list", folder, error.value());
  std::sort(entries.begin(), entries.end(),
            [](const FolderEntry& a, const FolderEntry& b) { return a.name < b.name; });
  return entries;
}

std::vector<std::string> entry_names(const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  if (fs::exists(folder, error) || error)
    for (FolderEntry& entry : list_folder(folder))
      names.push_back(std::move(entry.name));
  return names;
}

std::vector<fs::path> files_matching(const fs::path& folder, const std::string& pattern) {
  std::vector<fs::path> files;
  for (const FolderEntry& entry : list_folder(folder))
    if (!entry.is_folder && fnmatch(pattern.c_str(), entry.name.c_str(), FNM_PERIOD) == 0)
      files.push_back(folder / entry.name);
  return files;
}

}  // namespace sdp
