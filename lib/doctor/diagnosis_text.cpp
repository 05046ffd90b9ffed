// Prints a diagnosis for people and for programs.

#include <fmt/format.h>

#include "doctor/doctor.h"
#include "spec/json_fields.h"
#include "text/json_text.h"
#include "text/table.h"
#include "text/units.h"

namespace sdp {
namespace {

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string table_of(const std::vector<Report>& ranks) {
  TextTable table(
      {"rank", "host", "device", "id", "memory", "free", "cores", "threads", "Gloo over", "NCCL over"});
  for (const Report& report : ranks) {
    const RankFacts& facts = report.facts;
    table.add_row({std::to_string(facts.rank), facts.host, or_dash(facts.device), or_dash(facts.device_id),
                   format_bytes(facts.memory_bytes), format_bytes(facts.free_memory_bytes),
                   std::to_string(facts.cores), facts.threads == 0 ? "-" : std::to_string(facts.threads),
                   or_dash(facts.interface), or_dash(facts.nccl_network)});
  }
  return table.str();
}

std::string verdict_of(const std::vector<Finding>& findings) {
  std::vector<std::string> names;
  for (const Finding& finding : findings)
    if (finding.status == Status::kFail) names.push_back(finding.check);
  if (names.empty()) return "Nothing failed.";
  std::string all;
  for (const std::string& name : names)
    all += (all.empty() ? "" : ", ") + name;
  return fmt::format("{} check{} failed: {}", names.size(), names.size() == 1 ? "" : "s", all);
}

}  // namespace

std::string text_of(const Diagnosis& diagnosis, const Ranks& ranks) {
  return fmt::format("{} process{}, ranks from {}\n\n{}\n{}\n{}\n", ranks.world, ranks.world == 1 ? "" : "es",
                     ranks.source, table_of(diagnosis.ranks), text_of(diagnosis.findings),
                     verdict_of(diagnosis.findings));
}

std::string json_text_of(const Diagnosis& diagnosis, const Ranks& ranks) {
  nlohmann::ordered_json json = {{"passed", !any_failed(diagnosis.findings)},
                                 {"processes", ranks.world},
                                 {"ranks_from", ranks.source},
                                 {"checks", nlohmann::ordered_json::array()},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (const Finding& finding : diagnosis.findings)
    json["checks"].push_back(json_of(finding));
  for (const Report& report : diagnosis.ranks) {
    nlohmann::ordered_json row = json_of(report.facts);
    row["versions"] = json_of(report.versions);
    row["cuda"] = json_of(report.cuda);
    json["ranks"].push_back(std::move(row));
  }
  json["profiles"] = to_json(diagnosis.profiles);
  return json_text(json, 2) + "\n";
}

}  // namespace sdp
