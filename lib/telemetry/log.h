#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace spdlog {
class logger;
}

namespace sdp {

/// Where a run's messages go: an spdlog logger behind plain strings, so that its headers and fmt's stay out
/// of files that include LibTorch, which brings an fmt of its own. Copies write to the same places.
class Logger {
 public:
  explicit Logger(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}

  void info(const std::string& message) const;
  void warn(const std::string& message) const;
  void error(const std::string& message) const;

  /// Appends to the log file what was logged until now, and from now on every message at once. Throws
  /// DataError where it cannot be opened.
  void begin_file() const;

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

/// A logger to pass to whoever logs; spdlog's global one is not touched.
///
/// console: rank 0 prints messages as they are on standard output, warnings and errors as "warning: ..." and
/// "error: ..." on standard error; other ranks print only those, with "rank 3: " in front.
/// log_file: every message with time, rank and level is appended; ranks may share a file. It is not touched
/// before begin_file(), so that a run which turns out to have nothing to do leaves it as it is.
Logger make_logger(int rank, const std::optional<std::filesystem::path>& log_file, bool console);

}  // namespace sdp
