#include "io/glob.h"

#include <fnmatch.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "io/file.h"

namespace sdp {

namespace fs = std::filesystem;

std::vector<fs::path> files_matching(const fs::path& folder, const std::string& pattern) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    // What cannot be looked at (a link that leads nowhere) stays: opening it says what is wrong.
    std::error_code unknown;
    if (fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0 && !it->is_directory(unknown))
      names.push_back(std::move(name));
  }
  if (error) throw_io_error("list", folder, error.value());
  std::sort(names.begin(), names.end());
  std::vector<fs::path> files;
  files.reserve(names.size());
  for (const std::string& name : names)
    files.push_back(folder / name);
  return files;
}

}  // namespace sdp
