#include "sweep/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "io/atomic_file.h"
#include "process/awaited_signals.h"
#include "process/copy.h"
#include "process/tail.h"
#include "spec/error.h"
#include "text/units.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;
using Clock = AwaitedSignals::Clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// A file descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw UsageError(fmt::format("cannot make the folder {}: {}. Set output.dir to another place.",
                                 folder.string(), error.message()));
}

/// Opens the sweep's folder and keeps other sweeps out of it for as long as the descriptor is open.
int lock_folder(const fs::path& folder) {
  make_folder(folder);
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw_io_error("open", folder, errno);
  // A file system without locks is no reason not to run.
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(descriptor);
    throw UsageError(
        fmt::format("another sweep is at work in {}. Wait for it, or set another name.", folder.string()));
  }
  return descriptor;
}

/// Where a run prints to, and where its part of it begins.
struct Output {
  explicit Output(const SweepRun& run) : path(run.folder.output()) {
    make_folder(run.folder.dir);
    descriptor =
        open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (descriptor < 0) throw_io_error("write", path, errno);
    begin_bytes = fs::file_size(path);
  }
  fs::path path;
  int descriptor = -1;
  std::uintmax_t begin_bytes = 0;
};

class SweepRunner {
 public:
  SweepRunner(const Sweep& sweep, const SweepOptions& options)
      : sweep_(sweep), options_(options), is_terminal_(isatty(STDOUT_FILENO) == 1) {
    for (const SweepRun& run : sweep.runs)
      left_ += run.stage != RunStage::kDone ? 1 : 0;
  }

  int run() {
    say(fmt::format("sweep {}: {} runs in {}, {} of them done", sweep_.name, sweep_.runs.size(),
                    sweep_.folder.string(), sweep_.runs.size() - left_));
    for (size_t i = 0; i < sweep_.runs.size() && !is_stopped(); ++i)
      if (sweep_.runs[i].stage != RunStage::kDone) run_one(i);
    return report();
  }

 private:
  struct Failure {
    const SweepRun* run;
    int code;
  };

  void run_one(size_t index) {
    const SweepRun& run = sweep_.runs[index];
    const std::string place = fmt::format("[{}/{}] {}", index + 1, sweep_.runs.size(), run.point.name);
    say(run.stage == RunStage::kCut ? fmt::format("{}: goes on from step {}", place, run.step)
                                    : fmt::format("{}: starts", place));
    const Clock::time_point began = Clock::now();
    const int code = run_child(run);
    const double seconds = seconds_since(began);
    if (code == static_cast<int>(ExitCode::kPreempted) || (code != 0 && stopped_)) {
      stopped_ = true;
      say(fmt::format("{}: stopped after {}", place, format_duration(seconds)));
      return;
    }
    left_ -= 1;
    ran_ += 1;
    if (code != 0) failures_.push_back({&run, code});
    std::string text =
        fmt::format("{}: {} after {}", place, code == 0 ? "done" : end_of(code), format_duration(seconds));
    const double elapsed = seconds_since(began_);
    text += fmt::format("; elapsed {}", format_duration(elapsed));
    if (left_ > 0)
      text += fmt::format(", ETA {}",
                          format_duration(elapsed / static_cast<double>(ran_) * static_cast<double>(left_)));
    say(text);
  }

  /// The exit code of the run.
  int run_child(const SweepRun& run) {
    if (is_terminal_) return wait_for(start(run, -1));
    const Output output(run);
    const Descriptor descriptor(output.descriptor);
    const int code = wait_for(start(run, output.descriptor));
    if (code != 0 && code != static_cast<int>(ExitCode::kPreempted))
      for (const std::string& line : last_lines(output.path, output.begin_bytes))
        std::fprintf(stderr, "  %s\n", line.c_str());
    return code;
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

  /// Whether a signal came, also between two runs.
  bool is_stopped() {
    while (const std::optional<int> signal = signals_.wait(Clock::now()))
      stopped_ = stopped_ || *signal != SIGCHLD;
    return stopped_;
  }

  int report() const {
    for (const Failure& failure : failures_)
      std::fprintf(stderr, "error: the run %s failed (%s); see %s\n", failure.run->point.name.c_str(),
                   end_of(failure.code).c_str(), failure.run->folder.dir.c_str());
    if (left_ > 0) {
      say(fmt::format("sweep {}: stopped by a signal; the same command goes on with it", sweep_.name));
      return static_cast<int>(ExitCode::kPreempted);
    }
    say(fmt::format("sweep {}: {} of {} runs done", sweep_.name, sweep_.runs.size() - failures_.size(),
                    sweep_.runs.size()));
    return failures_.empty() ? 0 : failures_.front().code;
  }

  static std::string end_of(int code) { return fmt::format("exit code {}", code); }

  /// Before the run's own output, whoever buffers.
  static void say(const std::string& line) {
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
  }

  const Sweep& sweep_;
  const SweepOptions& options_;
  const bool is_terminal_;
  const AwaitedSignals signals_;
  const Clock::time_point began_ = Clock::now();
  size_t left_ = 0;  ///< runs that are neither done nor failed
  size_t ran_ = 0;
  bool stopped_ = false;
  std::vector<Failure> failures_;
};

}  // namespace

int run_sweep(const Sweep& sweep, const SweepOptions& options) {
  const Descriptor lock(lock_folder(sweep.folder));
  const std::string json = sweep_json(sweep);
  const fs::path file = sweep.folder / "sweep.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored) || read_text(file) != json) write_file_atomically(file, json);
  return SweepRunner(sweep, options).run();
}

}  // namespace sdp
