#include "process/identity.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

namespace sdp {
namespace {

/// The fields of /proc/PID/stat from the third on, the state; none if there is no such process, or it is
/// another user's and hidden.
std::vector<std::string> stat_of(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::istringstream rest(text.substr(text.rfind(')') + 1));  // the name before it may hold any character
  return {std::istream_iterator<std::string>(rest), {}};
}

int64_t start_in(const std::vector<std::string>& stat) {
  constexpr size_t kStart = 19;  // the 22nd of all fields
  return stat.size() > kStart ? std::strtoll(stat[kStart].c_str(), nullptr, 10) : 0;
}

}  // namespace

std::string random_id() {
  std::random_device random;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') return "localhost";
  return name.data();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
  return text.data();
}

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

std::string machine_id() {
  const std::string boot = boot_id();
  std::error_code ignored;
  const std::string pids = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  // Where the system does not tell, no other process counts as visible.
  return boot.empty() || pids.empty() ? random_id() : boot + " " + pids;
}

int64_t process_start() {
  return start_in(stat_of(getpid()));
}

bool is_running(int64_t pid, int64_t start) {
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return false;
  const std::vector<std::string> stat = stat_of(pid);
  if (stat.empty()) return true;
  const bool has_ended = stat[0] == "Z" || stat[0] == "X";  // a zombie
  return start_in(stat) == start && !has_ended;
}

}  // namespace sdp
