#include "run/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <cstdio>
#include <mutex>
#include <string_view>
#include <vector>

#include "io/file.h"

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

/// Holds messages until the file is opened.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  FileSink(int rank, std::filesystem::path path) : path_(std::move(path)) {
    set_pattern("%Y-%m-%d %H:%M:%S.%e rank " + std::to_string(rank) + " %l: %v");
  }

  void begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (file_) return;
    file_.emplace(path_, OutputFile::Mode::kAppend);
    append(kept_);
    kept_.clear();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    if (file_) {
      append({text.data(), text.size()});
    } else {
      kept_.append(text.data(), text.size());
    }
  }
  void flush_() override {}

 private:
  void append(std::string_view text) {
    file_->write(text);
    file_->flush();
  }

  std::filesystem::path path_;
  std::optional<OutputFile> file_;
  std::string kept_;
};

}  // namespace

Logger make_logger(int rank, const std::optional<std::filesystem::path>& log_file, bool console) {
  std::vector<spdlog::sink_ptr> sinks;
  if (console) sinks.push_back(std::make_shared<ConsoleSink>(rank));
  if (log_file) sinks.push_back(std::make_shared<FileSink>(rank, *log_file));
  auto logger = std::make_shared<spdlog::logger>("sdp", sinks.begin(), sinks.end());
  logger->flush_on(spdlog::level::trace);
  return Logger(std::move(logger));
}

// Passed as text, never as a format string: messages may contain braces.
void Logger::info(const std::string& message) const {
  logger_->log(spdlog::level::info, spdlog::string_view_t(message));
}

void Logger::warn(const std::string& message) const {
  logger_->log(spdlog::level::warn, spdlog::string_view_t(message));
}

void Logger::error(const std::string& message) const {
  logger_->log(spdlog::level::err, spdlog::string_view_t(message));
}

void Logger::record(const std::string& message) const {
  const spdlog::details::log_msg line(logger_->name(), spdlog::level::info, message);
  for (const spdlog::sink_ptr& sink : logger_->sinks())
    if (dynamic_cast<FileSink*>(sink.get())) sink->log(line);
}

void Logger::begin_file() const {
  for (const spdlog::sink_ptr& sink : logger_->sinks())
    if (auto* const file = dynamic_cast<FileSink*>(sink.get())) file->begin();
}

}  // namespace sdp
