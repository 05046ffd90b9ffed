#include "train/run_console.h"

#include <fmt/format.h>
#include <unistd.h>

namespace sdp {

RunConsole::RunConsole(Logger log, int rank, int64_t log_every_steps)
    : log_(std::move(log)), line_(rank == 0 ? STDOUT_FILENO : -1), progress_(line_, log_every_steps) {}

void RunConsole::tell(const std::string& message) {
  line_.clear();
  log_.info(message);
}

void RunConsole::warn(const std::string& message) {
  line_.clear();
  log_.warn(message);
}

void RunConsole::show(const ProgressState& state) {
  progress_.update(state);
  log_.record(format_progress_line(*progress_.state()));
}

void RunConsole::report_skipped(const std::string& message) {
  if (reported_.insert(message).second) warn(fmt::format("skipped: {}", message));
}

}  // namespace sdp
