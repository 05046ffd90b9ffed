#include "spec/describe.h"

#include <sstream>

namespace sdp {
namespace detail {
namespace {

constexpr std::array<size_t, 3> kColumnWidths = {34, 17, 14};  // key, type, default; the last takes the rest

}  // namespace

std::string wrap(std::string_view text, const std::string& indent) {
  std::istringstream words{std::string(text)};
  std::string wrapped;
  std::string line = indent;
  for (std::string word; words >> word;) {
    const bool is_first = line.size() == indent.size();
    if (!is_first && line.size() + 1 + word.size() > kDescribedColumns) {
      wrapped += line + "\n";
      line = indent + word;
    } else {
      line += (is_first ? "" : " ") + word;
    }
  }
  return wrapped + line + "\n";
}

std::string row(const std::array<std::string, 4>& cells) {
  std::string line;
  for (size_t i = 0; i < kColumnWidths.size(); ++i) {
    line += cells[i];
    // A cell wider than its column pushes the following cells to the right.
    line.append(cells[i].size() < kColumnWidths[i] ? kColumnWidths[i] - cells[i].size() : 1, ' ');
  }
  if (cells[3].empty()) return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  // Text that does not fit continues on the next line, in the same column.
  const std::string wrapped = wrap(cells[3], std::string(line.size(), ' '));
  return line + wrapped.substr(line.size());
}

}  // namespace detail

std::string description_header() {
  return detail::row({"key", "type", "default", "accepted [unit]"}) +
         std::string(detail::kDescribedColumns, '-') + "\n";
}

}  // namespace sdp
