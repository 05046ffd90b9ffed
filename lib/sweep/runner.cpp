#include "sweep/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "io/atomic_file.h"
#include "process/awaited_signals.h"
#include "process/copy.h"
#include "process/tail.h"
#include "spec/error.h"
#include "telemetry/run_lock.h"
#include "telemetry/run_owner.h"
#include "text/units.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;
using Clock = AwaitedSignals::Clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw UsageError(fmt::format("cannot make the folder {}: {}. Set output.dir to another place.",
                                 folder.string(), error.message()));
}

/// The file for a run's output, and the offset where this run's part begins.
class Output {
 public:
  explicit Output(const RunFolder& folder) : path_(folder.output()) {
    make_folder(folder.dir);
    descriptor_ =
        open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw_io_error("write", path_, errno);
    begin_bytes_ = fs::file_size(path_);
  }
  ~Output() { close(descriptor_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int descriptor() const { return descriptor_; }
  std::deque<std::string> last_lines() const { return sdp::last_lines(path_, begin_bytes_); }

 private:
  fs::path path_;
  int descriptor_ = -1;
  std::uintmax_t begin_bytes_ = 0;
};

/// Several sweeps may do this at the same time; all write the same content.
void write_sweep_json(const Sweep& sweep) {
  const std::string json = sweep_json(sweep);
  const fs::path file = sweep.folder / "sweep.json";
  std::error_code ignored;
  if (fs::exists(file, ignored) && read_text(file) == json) return;
  const fs::path own = sweep.folder / ("sweep-" + random_id() + ".json");
  write_file_atomically(own, json);
  std::error_code error;
  fs::rename(own, file, error);
  if (error) throw_io_error("write", file, error.value());
}

/// Interval between checks of runs in other processes, when nothing else is left to do.
constexpr std::chrono::seconds kLookEvery{2};

class SweepRunner {
 public:
  SweepRunner(const Sweep& sweep, const SweepOptions& options)
      : sweep_(sweep), options_(options), is_terminal_(isatty(STDOUT_FILENO) == 1) {
    for (size_t i = 0; i < sweep.runs.size(); ++i)
      if (sweep.runs[i].state.stage != RunStage::kDone)
        open_.push_back({.index = i, .lock = LockWatch(sweep.runs[i].folder.dir)});
    at_first_ = open_.size();
  }

  int run() {
    say(fmt::format("sweep {}: {} runs in {}, {} of them done", sweep_.name, sweep_.runs.size(),
                    sweep_.folder.string(), sweep_.runs.size() - at_first_));
    name_runs_on_this_host();
    while (!open_.empty() && !is_stopped())
      if (!pass_over_open_runs()) wait_for_others();
    return report();
  }

 private:
  /// Runs that are neither done nor failed.
  struct OpenRun {
    size_t index;
    LockWatch lock;
  };
  struct Failure {
    const SweepRun* run;
    int code;
  };

  const SweepRun& run_of(const OpenRun& open) const { return sweep_.runs[open.index]; }
  std::string place_of(const OpenRun& open) const {
    return fmt::format("[{}/{}] {}", open.index + 1, sweep_.runs.size(), run_of(open).point.name);
  }

  /// Sweeps on one host take each other's cores and GPUs, unless the user has divided them.
  void name_runs_on_this_host() const {
    if (std::getenv("OMP_NUM_THREADS") != nullptr || std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return;
    const std::string machine = this_process().machine;
    for (const OpenRun& open : open_) {
      const std::optional<RunOwner>& owner = run_of(open).owner;
      if (owner && owner->machine == machine)
        say(
            fmt::format("{}: runs on this host in another sweep ({}). Each sweep uses all cores and GPUs of "
                        "the host, unless "
                        "taskset, OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES divides them (docs/processes.md)",
                        place_of(open), describe(*owner)));
    }
  }

  /// Runs every run that no other process holds. Returns whether there was one.
  bool pass_over_open_runs() {
    bool has_run = false;
    for (size_t i = 0; i < open_.size() && !is_stopped();) {
      OpenRun& open = open_[i];
      const bool is_free = open.lock.look() == LockWatch::State::kFree;
      // Lock first: a run that ends between the two calls is then seen as done.
      const RunState state = state_of_run(run_of(open).folder);
      const bool is_done = state.stage == RunStage::kDone;
      if (is_done) say(fmt::format("{}: done by another process{}", place_of(open), remaining()));
      has_run = has_run || (is_free && !is_done);
      if (is_done || (is_free && run_one(open, state)))
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
    return has_run;
  }

  /// Returns whether the run was closed; false if another process was faster or the run was stopped.
  bool run_one(OpenRun& open, const RunState& state) {
    const SweepRun& run = run_of(open);
    const std::string place = place_of(open);
    say(state.stage == RunStage::kCut ? fmt::format("{}: resumes from step {}", place, state.step)
                                      : fmt::format("{}: starts", place));
    const Clock::time_point began = Clock::now();
    const auto [code, last_lines] = run_child(run);
    const std::string duration = format_duration(seconds_since(began));
    if (code == static_cast<int>(ExitCode::kPreempted) || (code != 0 && stopped_)) {
      stopped_ = true;
      say(fmt::format("{}: stopped after {}", place, duration));
      return false;
    }
    if (code == static_cast<int>(ExitCode::kUsage) && open.lock.look() != LockWatch::State::kFree) {
      say(fmt::format("{}: another process took it first", place));
      return false;
    }
    for (const std::string& line : last_lines)
      std::fprintf(stderr, "  %s\n", line.c_str());
    if (code != 0) failures_.push_back({&run, code});
    say(fmt::format("{}: {} after {}{}", place, code == 0 ? "done" : end_of(code), duration, remaining()));
    return true;
  }

  /// Estimate for all processes together, assuming that they continue. Call it for a run that is about to
  /// leave the list.
  std::string remaining() const {
    const double elapsed = seconds_since(began_);
    const size_t left = open_.size() - 1;
    std::string text = fmt::format("; elapsed {}", format_duration(elapsed));
    if (left > 0)
      text += fmt::format(", ETA {}", format_duration(elapsed / static_cast<double>(at_first_ - left) *
                                                      static_cast<double>(left)));
    return text;
  }

  void wait_for_others() {
    if (!has_told_of_others_) {
      for (const OpenRun& open : open_)
        say(fmt::format("{}: running in another process ({}); waiting for it", place_of(open),
                        open.lock.owner() ? describe(*open.lock.owner()) : "its lock file names no owner"));
      has_told_of_others_ = true;
    }
    const std::optional<int> signal = signals_.wait(Clock::now() + kLookEvery);
    stopped_ = stopped_ || (signal && *signal != SIGCHLD);
  }

  struct End {
    int code = 0;
    std::deque<std::string> last_lines =
        {};  ///< last lines of a failed run's output, if the output is not shown
  };
  End run_child(const SweepRun& run) {
    if (is_terminal_) return {.code = wait_for(start(run, -1))};
    const Output output(run.folder);
    const int code = wait_for(start(run, output.descriptor()));
    const bool failed = code != 0 && code != static_cast<int>(ExitCode::kPreempted);
    return {.code = code, .last_lines = failed ? output.last_lines() : std::deque<std::string>{}};
  }

  pid_t start(const SweepRun& run, int output) const {
    std::vector<std::string> arguments = {options_.program};
    for (const fs::path& config : run.point.configs)
      arguments.insert(arguments.end(), {"--config", config.string()});
    for (const std::string& assignment : run.point.overrides)
      arguments.insert(arguments.end(), {"--set", assignment});
    if (options_.processes_per_run)
      arguments.insert(arguments.end(), {"--nproc", std::to_string(*options_.processes_per_run)});
    arguments.emplace_back("--resume=if-any");
    return start_copy({.arguments = arguments, .output = output, .signal_mask = signals_.mask_before()});
  }

  int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, WNOHANG) != child) {
      const std::optional<int> signal = signals_.wait(std::nullopt);
      if (!signal || *signal == SIGCHLD) continue;
      stopped_ = true;
      kill(child, *signal);
    }
    return WIFSIGNALED(status) ? static_cast<int>(ExitCode::kPeerLost) : WEXITSTATUS(status);
  }

  /// Whether a stop signal arrived, also between two runs.
  bool is_stopped() {
    while (const std::optional<int> signal = signals_.wait(Clock::now()))
      stopped_ = stopped_ || *signal != SIGCHLD;
    return stopped_;
  }

  int report() const {
    for (const Failure& failure : failures_)
      std::fprintf(stderr, "error: the run %s failed (%s); see %s\n", failure.run->point.name.c_str(),
                   end_of(failure.code).c_str(), failure.run->folder.dir.c_str());
    if (!open_.empty()) {
      say(fmt::format("sweep {}: stopped by a signal; run the same command to continue", sweep_.name));
      return static_cast<int>(ExitCode::kPreempted);
    }
    say(fmt::format("sweep {}: {} of {} runs done", sweep_.name, sweep_.runs.size() - failures_.size(),
                    sweep_.runs.size()));
    return failures_.empty() ? 0 : failures_.front().code;
  }

  static std::string end_of(int code) { return fmt::format("exit code {}", code); }

  /// Flushed before the run's own output.
  static void say(const std::string& line) {
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
  }

  const Sweep& sweep_;
  const SweepOptions& options_;
  const bool is_terminal_;
  const AwaitedSignals signals_;
  const Clock::time_point began_ = Clock::now();
  std::vector<OpenRun> open_;
  size_t at_first_ = 0;  ///< open runs at the start of the sweep
  bool has_told_of_others_ = false;
  bool stopped_ = false;
  std::vector<Failure> failures_;
};

}  // namespace

int run_sweep(const Sweep& sweep, const SweepOptions& options) {
  make_folder(sweep.folder);
  write_sweep_json(sweep);
  return SweepRunner(sweep, options).run();
}

}  // namespace sdp
