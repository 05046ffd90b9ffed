#include "run/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "spec/error.h"
#include "spec/json_fields.h"

namespace sdp {

using nlohmann::ordered_json;

template <class Record>
static ordered_json json_of(const ByRank<Record>& record) {
  auto json = ordered_json::object();
  for_each_field<Record>([&](const FieldInfo& field, auto member) {
    auto list = ordered_json::array();
    for (const Record& of_rank : record.ranks)
      list.push_back(of_rank.*member);
    json[std::string(field.key)] = std::move(list);
  });
  return json;
}

/// The number of ranks is the length that all lists share.
template <class Record>
static void read_json(const ordered_json& json, ByRank<Record>& record, MissingKeys missing) {
  size_t count = json.empty() ? 0 : std::numeric_limits<size_t>::max();
  for (const auto& list : json)
    count = std::min(count, list.size());
  record.ranks.resize(count);
  for (size_t rank = 0; rank < count; ++rank) {
    auto of_rank = ordered_json::object();
    for (const auto& [key, list] : json.items())
      of_rank[key] = list.at(rank);
    read_json(of_rank, record.ranks[rank], missing);
  }
}

namespace {

/// The line's record, if it is of this kind.
template <class Record>
bool take_if_kind(std::optional<MetricsRecord>& record, const std::string& kind, const ordered_json& json) {
  if (kind != Record::kKind) return false;
  read_json(json, record.emplace(Record()).template emplace<Record>(), MissingKeys::kUnknown);
  return true;
}

template <class... Records>
std::optional<MetricsRecord> record_of(const ordered_json& json, const std::variant<Records...>*) {
  const auto kind = json.at("kind").get<std::string>();
  std::optional<MetricsRecord> record;
  (take_if_kind<Records>(record, kind, json) || ...);
  return record;
}

}  // namespace

template <class Record>
std::string to_json_line(const Record& record) {
  ordered_json json;
  if (!Record::kKind.empty()) json["kind"] = Record::kKind;
  put_fields(record, json);
  return json_text(json);
}

template std::string to_json_line(const TrainRecord&);
template std::string to_json_line(const EvalRecord&);
template std::string to_json_line(const StartRecord&);
template std::string to_json_line(const CheckpointRecord&);
template std::string to_json_line(const NonfiniteRecord&);
template std::string to_json_line(const TraceRecord&);

std::optional<MetricsRecord> record_of_line(std::string_view line) {
  try {
    return record_of(ordered_json::parse(line), static_cast<const MetricsRecord*>(nullptr));
  } catch (const nlohmann::json::exception& error) {
    throw FieldError(error.what());
  }
}

void for_each_record(const std::filesystem::path& path, std::string_view advice,
                     const std::function<void(const MetricsRecord&)>& use) {
  for_each_line(path, [&](int64_t number, const std::string& line, bool is_whole) {
    if (!is_whole) return;  // it is being written, or was cut off
    std::optional<MetricsRecord> record;
    try {
      record = record_of_line(line);
    } catch (const FieldError& error) {
      throw DataError(fmt::format("{}, line {}: not a valid line of metrics ({}). {}", path.string(), number,
                                  error.what(), advice));
    }
    if (record) use(*record);
  });
}

int64_t cut_back(const std::filesystem::path& path, int64_t last_step) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return 0;
  AtomicFile kept(path);
  int64_t kept_lines = 0;
  for_each_line(path, [&](int64_t number, const std::string& line, bool is_whole) {
    if (!is_whole) return;  // the last line was cut off
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
      throw DataError(
          path.string() + ", line " + std::to_string(number) +
          ": not a JSON object with a step. Delete that line, or move the file away, and resume again.");
    if (json["step"].get<int64_t>() > last_step) return;
    kept.write(line + "\n");
    ++kept_lines;
  });
  kept.commit();
  return kept_lines;
}

std::vector<EvalRecord> evaluations(const std::filesystem::path& path) {
  std::vector<EvalRecord> found;
  for_each_line(path, [&](int64_t, const std::string& line, bool is_whole) {
    if (!is_whole) return;  // as cut_back
    try {
      const std::optional<MetricsRecord> record = record_of_line(line);
      const EvalRecord* const eval = record ? std::get_if<EvalRecord>(&*record) : nullptr;
      if (eval) found.push_back(*eval);
    } catch (const FieldError&) {
      return;
    }
  });
  return found;
}

std::optional<EvalRecord> find_evaluation(const std::filesystem::path& path, int64_t step) {
  std::optional<EvalRecord> found;
  for (const EvalRecord& record : evaluations(path))
    if (record.step == step) found = record;
  return found;
}

}  // namespace sdp
