#include "run/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string_view>

#include "io/file.h"
#include "spec/error.h"

namespace sdp {
namespace {

constexpr std::string_view kInfo = "info";

std::string local_time() {
  using std::chrono::system_clock;
  const auto now = std::chrono::floor<std::chrono::milliseconds>(system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03}", fmt::localtime(system_clock::to_time_t(now)),
                     now.time_since_epoch().count() % 1000);
}

}  // namespace

struct Logger::Destination {
  const int rank;
  const std::optional<std::filesystem::path> path;
  const bool has_console;
  std::mutex mutex = {};  ///< protects the following members and the console
  std::optional<OutputFile> file = {};
  std::string kept = {};  ///< until the file is opened

  void append(std::string_view text) {
    if (!file) {
      kept += text;
      return;
    }
    file->write(text);
    file->flush();
  }
  void record(std::string_view level, const std::string& message) {
    if (path) append(fmt::format("{} rank {} {}: {}\n", local_time(), rank, level, message));
  }
};

Logger::Logger(int rank, const std::optional<std::filesystem::path>& log_file, bool console)
    : destination_(new Destination{.rank = rank, .path = log_file, .has_console = console}) {}

void Logger::log(std::string_view level, const std::string& message) const {
  const std::lock_guard lock(destination_->mutex);
  const int rank = destination_->rank;
  if (destination_->has_console && (rank == 0 || level != kInfo)) {
    const std::string line = fmt::format("{}{}{}\n", rank == 0 ? "" : fmt::format("rank {}: ", rank),
                                         level == kInfo ? "" : fmt::format("{}: ", level), message);
    std::FILE* const stream = level == kInfo ? stdout : stderr;
    std::fwrite(line.data(), 1, line.size(), stream);
    std::fflush(stream);
  }
  try {
    destination_->record(level, message);
  } catch (const DataError& error) {  // may be logged because of this very problem
    std::fprintf(stderr, "error: %s\n", error.what());
  }
}

void Logger::info(const std::string& message) const {
  log(kInfo, message);
}

void Logger::warn(const std::string& message) const {
  log("warning", message);
}

void Logger::error(const std::string& message) const {
  log("error", message);
}

void Logger::record(const std::string& message) const {
  const std::lock_guard lock(destination_->mutex);
  destination_->record(kInfo, message);
}

void Logger::begin_file() const {
  const std::lock_guard lock(destination_->mutex);
  if (!destination_->path || destination_->file) return;
  destination_->file.emplace(*destination_->path, OutputFile::Mode::kAppend);
  destination_->append(std::exchange(destination_->kept, {}));
}

}  // namespace sdp
