#include "process/tail.h"

#include <fstream>

namespace sdp {

std::deque<std::string> last_lines(const std::filesystem::path& path, std::uintmax_t begin_bytes) {
  constexpr size_t kMostLines = 20;
  std::deque<std::string> lines;
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(begin_bytes));
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kMostLines) lines.pop_front();
  }
  return lines;
}

}  // namespace sdp
