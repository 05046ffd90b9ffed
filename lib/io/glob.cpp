#include "io/glob.h"

#include <fnmatch.h>

#include "io/listing.h"

namespace sdp {

namespace fs = std::filesystem;

std::vector<fs::path> files_matching(const fs::path& folder, const std::string& pattern) {
  std::vector<fs::path> files;
  for (const FolderEntry& entry : list_folder(folder))
    if (!entry.is_folder && fnmatch(pattern.c_str(), entry.name.c_str(), FNM_PERIOD) == 0)
      files.push_back(folder / entry.name);
  return files;
}

}  // namespace sdp
