#pragma once

// metrics.jsonl and trace.jsonl: one JSON object a line, which is a record. Numbers keep every bit.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "io/file.h"
#include "telemetry/records.h"

namespace sdp {

/// A line of metrics.jsonl, by its `kind`.
using MetricsRecord = std::variant<TrainRecord, EvalRecord, StartRecord, CheckpointRecord, NonfiniteRecord>;

/// The line of a record, without its end: `kind` unless it is empty, then the fields. For every record of
/// records.h that is one.
template <class Record>
std::string to_json_line(const Record& record);

/// Nothing of another kind than those above. Keys that the line lacks are as fields.h says. Throws
/// RecordError (record_json.h) for what is not a record.
std::optional<MetricsRecord> record_of_line(std::string_view line);

/// Calls use(number of the line, record) for every line of metrics.jsonl that is whole and of a kind that is
/// known. Without a file there are none. Throws DataError, with the number of a line that cannot be read and
/// `advice` on what to do.
void for_each_record(const std::filesystem::path& path, std::string_view advice,
                     const std::function<void(const MetricsRecord&)>& use);

/// Appends lines to a file; each is with the operating system when append() returns. Throws DataError.
class JsonLines {
 public:
  explicit JsonLines(const std::filesystem::path& path) : file_(path, OutputFile::Mode::kAppend) {}

  template <class Record>
  void append(const Record& record) {
    file_.write(to_json_line(record) + "\n");
    file_.flush();
  }

 private:
  OutputFile file_;
};

/// Keeps the lines with step <= last_step, in their order, and drops a last line that was cut short. Returns
/// how many it keeps. The file is replaced atomically; without a file nothing happens. Throws DataError with
/// the number of a line that is not an object with a step.
int64_t cut_back(const std::filesystem::path& path, int64_t last_step);

/// The last evaluation at this step, if there is one and the file. Throws DataError where it cannot be read;
/// lines that are no records are passed over.
std::optional<EvalRecord> find_evaluation(const std::filesystem::path& path, int64_t step);

}  // namespace sdp
