#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "catch.h"
#include "checkpoint/temp_folder.h"
#include "report/progress.h"

using namespace sdp;

namespace {

ProgressState half_way() {
  return {.step = 500,
          .total_steps = 1000,
          .epoch = 1.25,
          .total_epochs = 10,
          .loss = 2.30258,
          .samples_per_s = 1050,
          .seconds_left = 184,
          .memory_bytes = (int64_t{5} << 30) / 4};
}

/// A terminal of our own: what is written to `terminal` is read from `screen`.
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

  /// What was written since the last call.
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

constexpr const char* kErase = "\r\x1b[K";

}  // namespace

TEST_CASE("the progress line takes the room it gets", "[progress]") {
  const ProgressState state = half_way();
  const std::string full = " 50% epoch 1.25/10 loss 2.3026 1.05 k samples/s ETA 3m 04s 1.25 GiB";
  CHECK(format_progress(state, 200) == "[###############---------------] " + full);
  CHECK(format_progress(state, 80) == "[#####-----] " + full);
  CHECK(format_progress(state, 67) == full);
  CHECK(format_progress(state, 66) == "[##---]  50% epoch 1.25/10 loss 2.3026 1.05 k samples/s ETA 3m 04s");
  CHECK(format_progress(state, 50) == "[###---]  50% epoch 1.25/10 loss 2.3026 ETA 3m 04s");
  CHECK(format_progress(state, 30) == " 50% loss 2.3026 ETA 3m 04s");
  CHECK(format_progress(state, 20) == " 50% loss 2.3026");
  CHECK(format_progress(state, 4) == " 50%");
  CHECK(format_progress(state, 2) == " 5");
  CHECK(format_progress(state, -1).empty());
  for (int columns = 0; columns < 200; ++columns)
    CHECK(static_cast<int>(format_progress(state, columns).size()) <= columns);
}

TEST_CASE("the progress line shows what is known", "[progress]") {
  ProgressState state = {.step = 999, .total_steps = 1000, .epoch = 2};
  CHECK(format_progress(state, 20) == " 99% epoch 2.00");
  state.step = 1000;
  CHECK(format_progress(state, 20) == "100% epoch 2.00");
  state.loss = std::nan("");
  CHECK(format_progress_line(state) == "step 1000/1000 100% epoch 2.00 loss nan");
  CHECK(format_progress_line({}) == "step 0/0   0% epoch 0.00");
  CHECK(format_progress_line(half_way()) ==
        "step 500/1000  50% epoch 1.25/10 loss 2.3026 1.05 k samples/s ETA 3m 04s 1.25 GiB");
}

TEST_CASE("away from a terminal there is a line at the logging interval and at the end", "[progress]") {
  const TempFolder folder;
  const int file = open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0600);
  REQUIRE(file >= 0);
  const Progress::Clock::time_point start;
  Progress progress(file, 10);
  for (int64_t step = 1; step <= 25; ++step)
    progress.update({.step = step, .total_steps = 100, .epoch = 1}, start + std::chrono::seconds(2 * step));
  progress.finish();
  progress.finish();
  close(file);
  CHECK(get(folder / "out") ==
        "step 10/100  10% epoch 1.00 ETA 3m 00s\n"
        "step 20/100  20% epoch 1.00 ETA 2m 40s\n"
        "step 25/100  25% epoch 1.00 ETA 2m 30s\n");
}

TEST_CASE("on a terminal one line is redrawn, ten times a second at most", "[progress]") {
  const PseudoTerminal pty(60);
  const Progress::Clock::time_point start;
  const auto at = [&](int64_t ms) { return start + std::chrono::milliseconds(ms); };
  const auto state = [](int64_t step) { return ProgressState{.step = step, .total_steps = 10, .epoch = 1}; };
  Progress progress(pty.terminal(), 1);

  progress.update(state(1), at(0));
  CHECK(pty.screen() == kErase + format_progress(state(1), 59));
  progress.update(state(2), at(50));
  progress.update(state(3), at(99));
  CHECK(pty.screen().empty());
  progress.update(state(4), at(300));
  const std::string drawn = pty.screen();
  CHECK(contains(drawn, " 40% epoch 1.00 ETA 0.6 s"));  // 3 steps in 0.3 s, 6 to go
  CHECK(drawn.size() <= std::string(kErase).size() + 59);

  progress.clear();
  CHECK(pty.screen() == kErase);
  progress.clear();
  CHECK(pty.screen().empty());
  progress.update(state(5), at(310));
  progress.finish();
  const std::string last = pty.screen();
  CHECK(contains(last, " 50%"));
  CHECK(last.ends_with("\r\n"));  // the terminal's own form of a line end
}

TEST_CASE("progress that nobody can see harms nothing", "[progress]") {
  Progress progress(-1, 1);
  progress.update({.step = 1, .total_steps = 1});
  progress.finish();
}
