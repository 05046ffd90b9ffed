#include "process/copy.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

namespace sdp {
namespace {

constexpr int kCannotExecute = 127;

/// Null-terminated array of pointers to strings, as execve expects it.
class PointerArray {
 public:
  explicit PointerArray(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& text : strings_)
      pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  PointerArray(const PointerArray&) = delete;
  PointerArray& operator=(const PointerArray&) = delete;
  char* const* data() const { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

/// Runs between fork and exec: only system calls.
[[noreturn]] void become(char* const* arguments, char* const* environment, int output, const sigset_t& mask,
                         pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotExecute);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (nothing > STDERR_FILENO) close(nothing);
  if (output >= 0) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  execve("/proc/self/exe", arguments, environment);
  constexpr std::string_view message = "sdp-train: cannot start a copy of this program\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message.data(), message.size());
  _exit(kCannotExecute);
}

}  // namespace

pid_t start_copy(const CopyOptions& options) {
  const PointerArray arguments(options.arguments);
  const PointerArray own_environment(options.environment.value_or(std::vector<std::string>()));
  char* const* environment = options.environment ? own_environment.data() : environ;
  const pid_t parent = getpid();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) become(arguments.data(), environment, options.output, options.signal_mask, parent);
  if (child < 0)
    throw std::system_error(errno, std::generic_category(), "cannot start a copy of this program");
  return child;
}

}  // namespace sdp
