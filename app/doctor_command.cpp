#include <fmt/format.h>

#include <cstdio>

#include "comm/launcher.h"
#include "commands.h"
#include "doctor/doctor.h"
#include "engine/device.h"
#include "process/identity.h"
#include "process/signals.h"
#include "spec/error.h"

namespace sdp {
namespace {

constexpr int kProcessesOnCpu = 2;

/// Temporary folder for the console output of ranks above 0; removed at the end.
class LogFolder {
 public:
  LogFolder() : path_(std::filesystem::temp_directory_path() / ("sdp-train-doctor-" + random_id())) {
    std::filesystem::create_directory(path_);
  }
  ~LogFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

DoctorOptions options_of(const DoctorArguments& arguments) {
  return {.device = value_named<DeviceKind>(arguments.device).value(),
          .output = arguments.output,
          .save = arguments.save};
}

int processes_to_start(const DoctorArguments& arguments) {
  if (arguments.processes) return static_cast<int>(*arguments.processes);
  const StopSignalsBlocked here;
  const int devices = device_count(options_of(arguments).device);
  return devices > 0 ? devices : kProcessesOnCpu;
}

}  // namespace

int doctor_command(const DoctorArguments& arguments) {
  ignore_sigpipe();
  const std::filesystem::path& save = arguments.save;
  if (!save.empty() && save.extension() != ".json")
    throw UsageError(fmt::format(
        "--save {}: expected a name that ends in .json, so that plan --device recognizes it as a file",
        save.string()));
  const std::optional<Ranks> ranks = ranks_from_environment(current_environment());
  if (ranks && ranks->rendezvous_file.empty() && arguments.processes)
    throw UsageError(fmt::format("--nproc {}: the processes were already started by {}. Leave --nproc out.",
                                 *arguments.processes, ranks->source));
  const int processes = ranks ? ranks->world : processes_to_start(arguments);
  if (!ranks && processes > 1) {
    const LogFolder logs;
    return launch(processes, arguments.command_line, logs.path());
  }
  Ranks own;
  own.source = "a single process";
  if (ranks) own = *ranks;
  const bool first = own.rank == 0;
  const Diagnosis diagnosis = diagnose(own, options_of(arguments), [&](const std::string& check) {
    if (first) std::fprintf(stderr, "checking %s\n", check.c_str());
  });
  if (first)
    std::fputs((arguments.json ? json_text_of(diagnosis, own) : text_of(diagnosis, own)).c_str(), stdout);
  else if (!diagnosis.lost.empty())
    std::fprintf(stderr, "error: %s\n", diagnosis.lost.c_str());
  return any_failed(diagnosis.findings) ? 1 : 0;
}

}  // namespace sdp
