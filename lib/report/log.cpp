#include "report/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "spec/error.h"

namespace sdp {
namespace {

class ConsoleSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ConsoleSink(int rank) : rank_(rank) {
    if (rank != 0) set_level(spdlog::level::warn);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line;
    if (rank_ != 0) line += "rank " + std::to_string(rank_) + ": ";
    if (message.level == spdlog::level::warn) line += "warning: ";
    if (message.level >= spdlog::level::err) line += "error: ";
    line.append(message.payload.data(), message.payload.size());
    line += '\n';
    std::FILE* stream = message.level >= spdlog::level::warn ? stderr : stdout;
    std::fwrite(line.data(), 1, line.size(), stream);
    std::fflush(stream);
  }
  void flush_() override {}

 private:
  int rank_;
};

spdlog::sink_ptr file_sink(int rank, const std::filesystem::path& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    sink->set_pattern("%Y-%m-%d %H:%M:%S.%e rank " + std::to_string(rank) + " %l: %v");
    return sink;
  } catch (const spdlog::spdlog_ex& error) {
    throw DataError("cannot write the log: " + std::string(error.what()) +
                    ". Check the permissions of that place or choose another one.");
  }
}

}  // namespace

Logger make_logger(int rank, const std::optional<std::filesystem::path>& log_file, bool console) {
  std::vector<spdlog::sink_ptr> sinks;
  if (console) sinks.push_back(std::make_shared<ConsoleSink>(rank));
  if (log_file) sinks.push_back(file_sink(rank, *log_file));
  auto logger = std::make_shared<spdlog::logger>("sdp", sinks.begin(), sinks.end());
  logger->flush_on(spdlog::level::trace);
  return Logger(std::move(logger));
}

// Passed on as text, never as a format: messages may hold braces.
void Logger::info(const std::string& message) const {
  logger_->log(spdlog::level::info, spdlog::string_view_t(message));
}

void Logger::warn(const std::string& message) const {
  logger_->log(spdlog::level::warn, spdlog::string_view_t(message));
}

void Logger::error(const std::string& message) const {
  logger_->log(spdlog::level::err, spdlog::string_view_t(message));
}

}  // namespace sdp
