#include "process/write_line.h"

#include <unistd.h>

namespace sdp {

void write_line(std::string_view text) {
  const auto put = [](std::string_view part) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part.data(), part.size());
  };
  if (isatty(STDERR_FILENO) == 1) put("\r\x1b[K");
  put(text);
  put("\n");
}

}  // namespace sdp
