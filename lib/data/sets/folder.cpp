#include "data/sets/folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <system_error>

#include "io/listing.h"
#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw DataError(fmt::format("data.path: {} is not a folder. Expected the folder that holds the data set.",
                                folder.string()));
  return entry_names(folder);
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string enumerate(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  if (names.empty()) return "nothing";
  const size_t shown = std::min(names.size(), kMost);
  const std::string text = fmt::format("{:n}", std::span(names).first(shown));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

}  // namespace sdp
