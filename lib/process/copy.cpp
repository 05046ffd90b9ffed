#include "process/copy.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace sdp {
namespace {

constexpr int kCannotExecute = 127;

/// Null-terminated pointers to strings, as execve expects them.
std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings)
    pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

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
  const std::vector<char*> arguments = pointers_to(options.arguments);
  std::vector<char*> environment;
  if (options.environment) environment = pointers_to(*options.environment);
  const pid_t parent = getpid();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0)
    become(arguments.data(), options.environment ? environment.data() : environ, options.output,
           options.signal_mask, parent);
  if (child < 0)
    throw std::system_error(errno, std::generic_category(), "cannot start a copy of this program");
  return child;
}

}  // namespace sdp
