#pragma once

// metrics.jsonl and trace.jsonl: one record per line, as a JSON object. Numbers are written with full
// precision.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "io/file.h"
#include "run/records.h"

namespace sdp {

/// A line of metrics.jsonl, by its `kind`.
using MetricsRecord = std::variant<TrainRecord, EvalRecord, StartRecord, CheckpointRecord, NonfiniteRecord>;

/// A record as a line of JSON, without the newline: `kind` unless it is empty, then the fields. Instantiated
/// for every record of records.h that is a line.
template <class Record>
std::string to_json_line(const Record& record);

/// Parses a line; std::nullopt for a kind other than those above. Keys that an older
/// program did not write are unknown (MissingKeys). Throws FieldError (spec/json_fields.h) if the line is not
/// a record.
std::optional<MetricsRecord> record_of_line(std::string_view line);

/// Calls use(line number, record) for every complete line of a known kind in metrics.jsonl. A missing file
/// has no lines. Throws DataError with the number of a line that cannot be read, and with `advice` on what to
/// do.
void for_each_record(const std::filesystem::path& path, std::string_view advice,
                     const std::function<void(const MetricsRecord&)>& use);

/// Appends lines to a file. The operating system has each line when append() returns. Throws DataError.
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

/// Keeps the lines with step <= last_step in their order, and drops a last line that was cut off. Returns the
/// number of lines kept. The file is replaced atomically; a missing file is no error. Throws DataError with
/// the number of a line that is not an object with a step.
int64_t cut_back(const std::filesystem::path& path, int64_t last_step);

/// All evaluations, in the order of their lines; none if there is no file. Skips lines that are not records.
/// Throws DataError if the file cannot be read.
std::vector<EvalRecord> evaluations(const std::filesystem::path& path);

/// The last evaluation of this step, or std::nullopt if there is none. As above.
std::optional<EvalRecord> find_evaluation(const std::filesystem::path& path, int64_t step);

}  // namespace sdp
