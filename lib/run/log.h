#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace spdlog {
class logger;
}

namespace sdp {

/// Destination of a run's messages: an spdlog logger behind plain strings. The headers of spdlog and fmt stay
/// out of files that include LibTorch, which has an fmt of its own. Copies of a Logger write to the same
/// destination.
class Logger {
 public:
  explicit Logger(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}

  void info(const std::string& message) const;
  void warn(const std::string& message) const;
  void error(const std::string& message) const;
  /// Only in the log file: something that the console shows in another way.
  void record(const std::string& message) const;

  /// Appends everything logged so far to the log file, and from now on every message immediately. Throws
  /// DataError if the file cannot be opened.
  void begin_file() const;

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

/// Makes a logger to pass around; spdlog's global logger is not changed.
///
/// console: rank 0 prints messages to standard output, and warnings and errors to standard error as "warning:
/// ..." and "error: ...". Other ranks print only warnings and errors, prefixed with "rank 3: ". log_file:
/// every message is appended with its time, rank and level; ranks may share a file. It is not touched before
/// begin_file(), so that a run that has nothing to do leaves it unchanged.
Logger make_logger(int rank, const std::optional<std::filesystem::path>& log_file, bool console);

}  // namespace sdp
