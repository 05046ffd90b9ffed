#include "io/lines.h"

#include <cerrno>
#include <fstream>
#include <system_error>

#include "io/file.h"

namespace sdp {

void for_each_line(const std::filesystem::path& path,
                   const std::function<void(int64_t number, const std::string& line, bool is_whole)>& use) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_io_error("read", path, errno);
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number)
    use(number, line, !in.eof());
  if (in.bad()) throw_io_error("read", path, errno);
}

}  // namespace sdp
