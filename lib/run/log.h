#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sdp {

/// Destination of a run's messages. Copies of a Logger write to the same destination, from any thread.
class Logger {
 public:
  /// console: rank 0 prints messages to standard output, and warnings and errors to standard error as
  /// "warning: ..." and "error: ...". Other ranks print only warnings and errors, prefixed with "rank 3: ".
  /// log_file: every message is appended with its time, rank and level; ranks may share a file. It is not
  /// touched before begin_file(), so that a run that has nothing to do leaves it unchanged.
  Logger(int rank, const std::optional<std::filesystem::path>& log_file, bool console);

  // A message that cannot be written to the file is an error on standard error.
  void info(const std::string& message) const;
  void warn(const std::string& message) const;
  void error(const std::string& message) const;
  /// Only in the log file: something that the console shows in another way. Throws DataError.
  void record(const std::string& message) const;

  /// Appends everything logged so far to the log file, and from now on every message immediately. Throws
  /// DataError if the file cannot be opened.
  void begin_file() const;

 private:
  struct Destination;
  void log(std::string_view level, const std::string& message) const;

  std::shared_ptr<Destination> destination_;
};

}  // namespace sdp
