#include <fcntl.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <regex>

#include "catch.h"
#include "run/log.h"
#include "run/progress.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
using namespace std::string_literals;

namespace {

using Clock = Progress::Clock;
constexpr const char* kErase = "\r\x1b[K";

Clock::time_point at_ms(int64_t ms) {
  return Clock::time_point(std::chrono::milliseconds(ms));
}

/// A pseudo-terminal of 60 columns: output written to `terminal` is read from `screen`.
struct PseudoTerminal {
  PseudoTerminal() {
    const winsize size = {.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(openpty(&master, &terminal, nullptr, nullptr, &size) == 0);
    REQUIRE(fcntl(master, F_SETFL, O_NONBLOCK) == 0);
  }
  ~PseudoTerminal() {
    close(terminal);
    close(master);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;
  /// The output since the last call.
  std::string screen() const {
    std::string text;
    char buffer[4096];
    for (ssize_t size; (size = read(master, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(size));
    return text;
  }

  int terminal = -1, master = -1;
};

/// What a logger prints to standard output and standard error for one message of each level.
std::pair<std::string, std::string> output_of(int rank, bool console) {
  const TempFolder folder;
  std::fflush(nullptr);  // or the child writes it again
  const pid_t child = fork();
  if (child == 0) {
    dup2(creat((folder / "out").c_str(), 0600), STDOUT_FILENO);
    dup2(creat((folder / "err").c_str(), 0600), STDERR_FILENO);
    const Logger logger = make_logger(rank, std::nullopt, console);
    logger.info("step {1} of 2");
    logger.warn("slow");
    logger.error("broken");
    std::fflush(nullptr);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  return {get(folder / "out"), get(folder / "err")};
}

}  // namespace

TEST_CASE("the progress line fits the available width") {
  const ProgressState state = {.step = 500,
                               .total_steps = 1000,
                               .epoch = 1.25,
                               .total_epochs = 10,
                               .loss = 2.30258,
                               .samples_per_s = 1050,
                               .seconds_left = 184,
                               .process_memory_bytes = (int64_t{5} << 30) / 4,
                               .tensor_memory_bytes = int64_t{20} << 20};
  const std::string full =
      " 50% epoch 1.25/10 loss 2.3026 1.05 k samples/s ETA 3m 04s process memory 1.25 GiB tensor memory 20.0 "
      "MiB";
  CHECK(format_progress(state, 118) == "[#####-----] " + full);
  CHECK(format_progress(state, 105) == full);
  CHECK(format_progress(state, 50) == "[###---]  50% epoch 1.25/10 loss 2.3026 ETA 3m 04s");
  CHECK(format_progress(state, 20) == " 50% loss 2.3026");
  for (int columns = -1; columns < 200; ++columns)
    CHECK(static_cast<int>(format_progress(state, columns).size()) <= std::max(columns, 0));
  CHECK(format_progress_line(state) == "step 500/1000 " + full);
}

TEST_CASE("on a terminal one line is redrawn, at most ten times per second") {
  const PseudoTerminal pty;
  const auto state = [](int64_t step) { return ProgressState{.step = step, .total_steps = 10, .epoch = 1}; };
  ProgressLine line(pty.terminal);
  Progress progress(line, 1);

  progress.update(state(1), at_ms(0));
  CHECK(pty.screen() == kErase + format_progress(state(1), 59));
  progress.update(state(2), at_ms(50));
  progress.update(state(3), at_ms(99));
  CHECK(pty.screen().empty());
  progress.update(state(4), at_ms(300));
  const std::string drawn = pty.screen();
  CHECK(contains(drawn, " 40% epoch 1.00 ETA 0.6 s"));  // 3 steps in 0.3 s, 6 to go
  CHECK(drawn.size() <= std::string(kErase).size() + 59);

  line.clear();
  line.clear();
  CHECK(pty.screen() == kErase);
  progress.update(state(5), at_ms(310));
  progress.finish();
  const std::string last = pty.screen();
  CHECK(contains(last, " 50%"));
  CHECK(last.ends_with("\r\n"));  // the terminal's line ending
}

TEST_CASE("the progress line of other work fits the available width") {
  const TaskState state = {
      .name = "evaluating the model", .unit = "batches", .done = 36, .total = 80, .elapsed_s = 9};
  const std::string full = " 45% evaluating the model 36/80 batches ETA 11.0 s";  // 44 batches at 4 in 1 s
  for (const auto& [columns, line] : {std::pair(60, "[###----] " + full), {50, full}, {11, " 45%"}})
    CHECK(format_task(state, columns) == line);
}

TEST_CASE("long work is drawn on a terminal, and then removed") {
  const PseudoTerminal pty;
  ProgressLine line(pty.terminal);
  {
    ProgressTask task(line, "saving", "", at_ms(0));
    for (const auto& [done, ms, is_drawn] :
         {std::tuple(1, 0, false), {2, 1999, false}, {3, 2000, true}, {4, 2099, false}, {5, 2100, true}}) {
      task.update(done, 10, at_ms(ms));
      const TaskState state = {.name = "saving", .done = done, .total = 10, .elapsed_s = ms / 1000.0};
      CHECK(pty.screen() == (is_drawn ? kErase + format_task(state, 59) : ""));
    }
  }
  CHECK(pty.screen() == kErase);
}

TEST_CASE("without a terminal, long work has a line every 10 s") {
  const TempFolder folder;
  const int file = creat((folder / "out").c_str(), 0600);
  ProgressLine line(file);
  {
    ProgressTask task(line, "evaluating", "batches", at_ms(0));
    for (int64_t done = 1; done <= 12; ++done)
      task.update(done, 12, at_ms(2500 * done));
  }
  close(file);
  CHECK(get(folder / "out") ==
        "evaluating: 4/12 batches  33% ETA 20.0 s\n"
        "evaluating: 8/12 batches  66% ETA 10.0 s\n"
        "evaluating: 12/12 batches 100% ETA 0.0 s\n");
}

TEST_CASE("the console shows messages of rank 0, and warnings and errors of all ranks") {
  CHECK(output_of(0, true) == std::pair("step {1} of 2\n"s, "warning: slow\nerror: broken\n"s));
  CHECK(output_of(3, true) == std::pair(""s, "rank 3: warning: slow\nrank 3: error: broken\n"s));
  CHECK(output_of(0, false) == std::pair(""s, ""s));
}

TEST_CASE("the log file has time, rank and level, and is appended to") {
  const TempFolder folder;
  put(folder / "log.txt", "before\n");
  const Logger first = make_logger(0, folder / "log.txt", false);
  const Logger second = make_logger(1, folder / "log.txt", false);
  first.info("one");
  CHECK(get(folder / "log.txt") == "before\n");
  first.begin_file();
  second.begin_file();
  second.warn("two");
  first.error("three");
  const std::string time = R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} )";
  const std::regex expected("before\n" + time + "rank 0 info: one\n" + time + "rank 1 warning: two\n" + time +
                            "rank 0 error: three\n");
  CHECK(std::regex_match(get(folder / "log.txt"), expected));
  CHECK(contains(message_of<DataError>([&] { make_logger(0, folder / "log.txt/below", false).begin_file(); }),
                 "below"));
}
