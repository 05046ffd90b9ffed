#include "telemetry/run_owner.h"
#include "text/json_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace sdp {
namespace {

constexpr std::string_view kBeforeHeartbeat = R"({"heartbeat":")";

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int64_t number_or_zero(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Empty if it cannot be read.
std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  while (text.ends_with('\n'))
    text.pop_back();
  return text;
}

std::string link_target(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::read_symlink(path, ignored).string();
}

/// Unique if the system does not provide it: then no other process counts as visible.
std::string this_machine() {
  const std::string boot = file_text("/proc/sys/kernel/random/boot_id");
  const std::string namespace_of_pids = link_target("/proc/self/ns/pid");
  return boot.empty() || namespace_of_pids.empty() ? random_id() : boot + " " + namespace_of_pids;
}

/// The content of /proc/PID/stat.
struct ProcessStat {
  char state = '?';
  int64_t start = 0;  ///< clock ticks since boot
};

/// std::nullopt if it cannot be read: no such process, or it is another user's and hidden.
std::optional<ProcessStat> process_stat(int64_t pid) {
  const std::string text = file_text(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = text.rfind(')');  // the process name before it may contain any character
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  constexpr size_t kStart = 19;  // the 22nd of all
  if (fields.size() <= kStart) return std::nullopt;
  return ProcessStat{.state = fields[0].front(), .start = number_or_zero(fields[kStart])};
}

/// Whether the process exists and may still write. A zombie (Z) does not.
bool exists(const RunOwner& owner) {
  if (kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == ESRCH) return false;
  const std::optional<ProcessStat> stat = process_stat(owner.pid);
  return !stat || (stat->start == owner.process_start && stat->state != 'Z' && stat->state != 'X');
}

}  // namespace

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

RunOwner this_process() {
  const int64_t pid = getpid();
  return {.id = random_id(),
          .host = host_name(),
          .machine = this_machine(),
          .pid = pid,
          .process_start = process_stat(pid).value_or(ProcessStat{}).start,
          .job = environment_value("SLURM_JOB_ID"),
          .job_restarts = number_or_zero(environment_value("SLURM_RESTART_COUNT")),
          .since = utc_now()};
}

std::string describe(const RunOwner& owner) {
  std::string job;
  if (!owner.job.empty()) job = fmt::format("SLURM job {}", owner.job);
  if (!job.empty() && owner.job_restarts > 0) job += fmt::format(", restart {}", owner.job_restarts);
  if (!job.empty()) job = " (" + job + ")";
  return fmt::format("process {} on host {}{}, since {}", owner.pid, owner.host, job, owner.since);
}

OwnerState state_of(const RunOwner& owner, const RunOwner& observer) {
  // SLURM ends a job before it restarts it.
  if (!owner.job.empty() && owner.job == observer.job && owner.job_restarts < observer.job_restarts)
    return OwnerState::kGone;
  if (owner.machine != observer.machine) return OwnerState::kUnknown;
  return exists(owner) ? OwnerState::kRunning : OwnerState::kGone;
}

std::string heartbeat_text(int64_t heartbeat) {
  return fmt::format("{:012}", heartbeat);
}

size_t heartbeat_offset() {
  return kBeforeHeartbeat.size();
}

std::string lock_text(const RunOwner& owner, int64_t heartbeat) {
  const nlohmann::ordered_json json = {{"heartbeat", heartbeat_text(heartbeat)},
                                       {"id", owner.id},
                                       {"host", owner.host},
                                       {"machine", owner.machine},
                                       {"pid", owner.pid},
                                       {"process_start", owner.process_start},
                                       {"job", owner.job},
                                       {"job_restarts", owner.job_restarts},
                                       {"since", owner.since}};
  return json_text(json) + "\n";
}

std::optional<RunOwner> parse_lock_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    RunOwner owner;
    json.at("id").get_to(owner.id);
    json.at("host").get_to(owner.host);
    json.at("machine").get_to(owner.machine);
    json.at("pid").get_to(owner.pid);
    json.at("process_start").get_to(owner.process_start);
    json.at("job").get_to(owner.job);
    json.at("job_restarts").get_to(owner.job_restarts);
    json.at("since").get_to(owner.since);
    const bool is_id =
        !owner.id.empty() && owner.id.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_id || owner.pid < 1) return std::nullopt;
    return owner;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') return "localhost";
  return name.data();
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace sdp
