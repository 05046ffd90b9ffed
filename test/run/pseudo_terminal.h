#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "catch.h"

/// A pseudo-terminal: output written to `terminal` is read from `screen`.
class PseudoTerminal {
 public:
  explicit PseudoTerminal(unsigned short columns) : screen_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    REQUIRE(screen_ >= 0);
    REQUIRE(grantpt(screen_) == 0);
    REQUIRE(unlockpt(screen_) == 0);
    terminal_ = open(ptsname(screen_), O_RDWR | O_NOCTTY);
    REQUIRE(terminal_ >= 0);
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(ioctl(terminal_, TIOCSWINSZ, &size) == 0);
  }
  ~PseudoTerminal() {
    close(terminal_);
    close(screen_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  int terminal() const { return terminal_; }

  /// The output since the last call.
  std::string screen() const {
    std::string text;
    char buffer[4096];
    for (ssize_t size; (size = read(screen_, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(size));
    return text;
  }

 private:
  int screen_;
  int terminal_ = -1;
};

inline constexpr const char* kErase = "\r\x1b[K";
