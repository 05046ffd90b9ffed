#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "commands.h"
#include "report/find_runs.h"
#include "report/groups.h"
#include "report/report_files.h"
#include "report/table_text.h"
#include "report/watch_view.h"
#include "spec/error.h"

namespace sdp {
namespace {

constexpr time_t kRedrawSeconds = 2;

/// Throws DataError if there is nothing to report.
FoundRuns readable_runs(const std::vector<std::filesystem::path>& paths) {
  FoundRuns found = find_runs(paths);
  std::string reasons;
  for (const UnreadableRun& run : found.unreadable)
    reasons += fmt::format("\n  {}: {}", run.dir.string(), run.reason);
  if (found.runs.empty()) throw DataError(fmt::format("none of the runs can be read:{}", reasons));
  if (!reasons.empty()) std::fprintf(stderr, "warning: left out:%s\n", reasons.c_str());
  for (const CopiedRun& copy : found.copies)
    std::fprintf(stderr, "warning: left out: %s: the same run as %s\n", copy.dir.c_str(),
                 copy.counted.c_str());
  return found;
}

std::string table_text(const StudyTable& table, ReportFormat format) {
  switch (format) {
    case ReportFormat::kMarkdown:
      return to_markdown(table);
    case ReportFormat::kLatex:
      return to_latex(table);
    case ReportFormat::kCsv:
      return to_csv(table);
    case ReportFormat::kText:
      break;
  }
  return to_text(table);
}

/// Redraws a text in place on a terminal.
class Screen {
 public:
  void draw(const std::string& text) {
    winsize size = {};
    const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1;
    std::string shown = text;
    // Lines that scrolled out of the terminal cannot be redrawn.
    if (is_known) cut_rows(shown, size.ws_row - 1);
    if (rows_ > 0) std::printf("\x1b[%dA", rows_);
    std::printf("\r\x1b[J%s", shown.c_str());
    std::fflush(stdout);
    rows_ = static_cast<int>(std::count(shown.begin(), shown.end(), '\n'));
  }

  static size_t columns() {
    constexpr size_t kUnknown = 120;
    winsize size = {};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknown;
  }

 private:
  static void cut_rows(std::string& text, int rows) {
    size_t end = 0;
    for (int row = 0; row < rows && end < text.size(); ++row)
      end = text.find('\n', end) + 1;
    text.resize(end);
  }

  int rows_ = 0;
};

/// Runs until all runs are finished or SIGINT or SIGTERM arrives.
void watch(const std::vector<std::filesystem::path>& paths) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Screen screen;
  while (true) {
    const FoundRuns found = find_runs(paths);
    screen.draw(watch_view(found, Screen::columns()));
    const bool all_finished =
        std::all_of(found.runs.begin(), found.runs.end(), [](const Run& run) { return run.is_finished(); });
    if (all_finished && found.unreadable.empty()) return;
    const timespec pause{.tv_sec = kRedrawSeconds, .tv_nsec = 0};
    if (sigtimedwait(&ends, nullptr, &pause) > 0) return;
  }
}

}  // namespace

int report_command(const ReportArguments& arguments) {
  if (arguments.watch) {
    if (isatty(STDOUT_FILENO) == 1) {
      watch(arguments.paths);
    } else {
      std::fputs(watch_view(find_runs(arguments.paths), Screen::columns()).c_str(), stdout);
    }
    return 0;
  }
  FoundRuns found = readable_runs(arguments.paths);
  const std::vector<Group> groups = group_runs(std::move(found.runs));
  const StudyTable table = make_table(groups, arguments.baseline);
  if (!arguments.out.empty()) {
    const std::vector<std::string> names = write_report(groups, table, found, arguments.out);
    std::printf("wrote %s (%zu files)\n", (arguments.out / names.back()).c_str(), names.size());
  }
  if (arguments.out.empty() || arguments.format)
    std::fputs(table_text(table, arguments.format.value_or(ReportFormat::kText)).c_str(), stdout);
  return 0;
}

}  // namespace sdp
